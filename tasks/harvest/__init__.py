"""The synchronization of a member: it lists the objects, fetches their metadata, and stores them."""

from tasks.harvest.asked import Asked
from tasks.harvest.harvest import harvest_member
from tasks.harvest.outcome import Outcome

__all__ = ["Asked", "Outcome", "harvest_member"]
