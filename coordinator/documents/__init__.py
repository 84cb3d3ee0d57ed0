"""A document on all nodes or on none."""

from typing import TYPE_CHECKING

from coordinator.later import handing_on

if TYPE_CHECKING:
    from coordinator.documents.document import Document
    from coordinator.documents.registry import Documents
else:
    __getattr__, __dir__ = handing_on(__name__, {"document": ("Document",), "registry": ("Documents",)})

__all__ = ["Document", "Documents"]
