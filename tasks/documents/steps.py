"""Declares the Redis Functions for documents, which document.lua implements."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from coordinator.extending import Reply, step


@step
def document_ask(doc: str, update: bytes) -> str:
    """Request an update of some entries of a document.

    update: JSON {id, fence, changes: [[entry, JSON or "null", checksum]…], follow, who, why, act?}; fence: "" = each
    entry keeps its fence; checksum: SHA-1 of "<fence> <JSON>" as the author of the update read the entry, "" = not
    compared; follow: the permanent store lacks the changes; act: an operator's command, JSON {why, by, ticket?, verb,
    kind, name, before, after}, for the audit trail
    asked (the update waits) | committed <version> | stale <fence> <entry> | changed <fence> <entry>. Asked again: the
    state of that update.
    """


@step
def document_report(
    doc: str, member: str, version: int, sha: str, prepared: int, prepared_sha: str, silence: int
) -> Reply:  # fmt: skip
    """Report which versions a member has on its disk, and get what it has to do. The member enters the replica set once
    it has the committed version and the one that is being prepared. Members that did not report while others
    acknowledged, or whose connection is gone, leave the set.

    version, prepared: the committed version on the member's disk, and a later one that is prepared there; 0 = none;
    silence: milliseconds without a report after which a member leaves
    [what, committed version, its sha, version being prepared or "", updates or "", [members that left]]; what: kept
    (nothing to do) | commit (the version that the member has prepared is committed) | prepare (write the next version
    first) | behind (fetch the committed version) | ahead (Redis has lost its last writes: restore them).
    Asked again: the same, unless a version was prepared or committed since.
    """


@step
def document_leave(doc: str, member: str, why: str) -> bool:
    """Remove a member from the replica set, since its process ends or cannot write to its disk.

    why: a sentence for operators; "" = the process ends in good order
    True if the member was in the set. Asked again: False.
    """


@step
def document_restore(doc: str, member: str, version: int, sha: str, upon: int, upon_sha: str, *entries: str) -> bool:
    """Restore a later version from a member's disk after Redis has lost its last writes.

    upon: the version that is committed on the member's disk: `version` itself, or the one before; entries: entry,
    "<fence> <JSON>"
    False: Redis has this version or a later one, or `version` does not follow the committed one. Asked again: False.
    """


@step
def document_followed(doc: str, entry: str, version: int) -> bool:
    """Store that the permanent store has an entry as it was at a version. False: the entry has changed since, or this
    was stored before. Asked again: False.
    """


@step
def document_note(doc: str, name: str, before: str, after: str) -> bool:
    """Replace a note about the permanent store, if the note still is as the caller read it.

    before: the note as the caller read it, "" = there was none; after: the new note, "" = remove it
    False: the note is another by now. Asked again: the same.
    """
