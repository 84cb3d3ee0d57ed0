"""The synchronization of a member: it lists the objects, fetches their metadata, and stores them."""

from tasks.harvest.asked import SyncRequest
from tasks.harvest.harvest import harvest_member
from tasks.harvest.outcome import SyncResult

__all__ = ["SyncRequest", "SyncResult", "harvest_member"]
