"""The errors of documents."""

from __future__ import annotations

from coordinator import Conflict, CoordinatorError


class StaleFence(CoordinatorError):
    """Raised to a writer whose fence is smaller than `seen`, that of an earlier write; nothing was written."""

    def __init__(self, document: str, entry: str, seen: int) -> None:
        super().__init__(f"document {document}: {entry} has the greater fence {seen} already")
        self.entry = entry
        self.seen = seen


class Changed(Conflict):
    """Raised to a writer whose copy is out of date; nothing was written. Read again."""


class NotInReplicaSet(Conflict):
    """Raised to a job on a node that is out of a document's replica set: a later attempt runs on another node."""

    def __init__(self, document: str, node: str) -> None:
        super().__init__(f"node {node} is out of the replica set of the document {document}")
        self.document = document
        self.node = node

    def __reduce__(self) -> tuple[type[NotInReplicaSet], tuple[str, str]]:
        return type(self), (self.document, self.node)


class UpdatePending(CoordinatorError, TimeoutError):
    """Raised when not all nodes have an update in time. It goes on; repeat it with its id to get the outcome."""

    def __init__(self, document: str, update_id: str) -> None:
        super().__init__(f"document {document}: update {update_id} still waits for some of the document's members")
        self.update_id = update_id
