"""The exceptions that reads and updates of documents raise."""

from __future__ import annotations

from coordinator import Conflict, CoordinatorError


class StaleFence(CoordinatorError):
    """Refuses an update whose fence is smaller than that of an earlier change of `entry`. `seen`: that fence.

    Nothing was written.
    """

    def __init__(self, document: str, entry: str, seen: int) -> None:
        super().__init__(f"document {document}: {entry} has the greater fence {seen} already")
        self.entry = entry
        self.seen = seen


class Changed(Conflict):
    """Refuses an update of an entry that has changed since its author read it. Nothing was written: read again."""


class NotInReplicaSet(Conflict):
    """Raised by `Document.check` in a job on a node that is out of the document's replica set.

    As a Conflict, it makes a later attempt of the job run on another node.
    """

    def __init__(self, document: str, node: str) -> None:
        super().__init__(f"node {node} is out of the replica set of the document {document}")
        self.document = document
        self.node = node

    def __reduce__(self) -> tuple[type[NotInReplicaSet], tuple[str, str]]:
        return type(self), (self.document, self.node)


class UpdatePending(CoordinatorError, TimeoutError):
    """Raised when not all members of the replica set have an update on disk in time. The update goes on.

    To get the outcome, call `Document.update` again with the same `update_id`.
    """

    def __init__(self, document: str, update_id: str) -> None:
        super().__init__(f"document {document}: update {update_id} still waits for some of the document's members")
        self.update_id = update_id
