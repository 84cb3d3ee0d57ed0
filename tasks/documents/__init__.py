"""Documents: versioned sets of entries that every node and beat keeps on disk. A change reaches all, or none."""

from tasks.documents.document import Document
from tasks.documents.errors import Changed, NotInReplicaSet, StaleFence, UpdatePending
from tasks.documents.registry import Documents

__all__ = ["Changed", "Document", "Documents", "NotInReplicaSet", "StaleFence", "UpdatePending"]
