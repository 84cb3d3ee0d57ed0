"""What of the nodelist its permanent store lacks, and why."""

from typing import NamedTuple

from coordinator.replicas import Document


class Pending(NamedTuple):
    """The version that the store lacks, and why; "" where that is not known, or it is just being written."""

    version: int
    why: str

    @property
    def reason(self) -> str:
        return self.why or "it is about to be written"


def lacking(document: Document) -> dict[str, Pending]:
    """By member."""
    versions: dict[str, int] = {}
    for entry, version in sorted(document.behind().items()):
        if node_id := entry.partition("/")[2]:  # else it is that the list is empty
            versions[node_id] = max(version, versions.get(node_id, 0))
    notes = {node_id: document.stored_of(node_id) or {} for node_id in versions}
    return {node_id: Pending(version, notes[node_id].get("why", "")) for node_id, version in versions.items()}
