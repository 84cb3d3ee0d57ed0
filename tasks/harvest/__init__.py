"""The synchronization of a member: it lists the objects, fetches their metadata, and stores them."""

from tasks.harvest.asked import Asked
from tasks.harvest.harvest import harvest_member
from tasks.harvest.outcome import SyncResult

__all__ = ["Asked", "SyncResult", "harvest_member"]
