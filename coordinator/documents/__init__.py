"""A document on all nodes or on none."""

from coordinator.documents.document import Document
from coordinator.documents.registry import Documents

__all__ = ["Document", "Documents"]
