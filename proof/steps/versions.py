"""A document as the model knows it: what is committed, under way, and asked for, and who keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Update = dict[str, Any]  # its changes: [entry, JSON, checksum that was read, fence]


@dataclass
class Version:
    """One under way. `first`: when it was on a disk; `heard`: when a member reported last."""

    number: int
    updates: list[Update]
    begun: int
    first: int | None = None
    heard: int | None = None


@dataclass
class Document:
    """`has`: the checksum that a member has of the version under way; `grace`: when no version begins, until somewhere
    between these; `server`: the process that served last.
    """

    version: int = 0
    sha: str = "-"
    entries: dict[str, str] = field(default_factory=dict)
    asked: list[Update] = field(default_factory=list)
    next: Version | None = None
    members: set[str] = field(default_factory=set)
    has: dict[str, str] = field(default_factory=dict)
    grace: tuple[int, int] = (0, 0)
    server: str = ""
    behind: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)

    def is_next(self, version: int, upon: int, upon_sha: str) -> bool:
        """Nothing that is committed is missing in it."""
        return upon == self.version and (not upon or upon_sha == self.sha) and version > self.version

    def verdict(self, version: int, sha: str, prepared: int, prepared_sha: str) -> str:
        """What a member has to do with what lies on its disk. The first one that has a version gives its checksum where
        it was committed without members.
        """
        if self.sha == "-" and self.version and self.version == version:
            self.sha = sha
        following = self.next.number if self.next else 0
        if version > self.version or (prepared != following and self.is_next(prepared, version, sha)):
            return "ahead"
        if self.version and (prepared, prepared_sha) == (self.version, self.sha):
            return "commit"
        if version != self.version or (version and sha != self.sha):
            return "behind"
        return "kept" if following in (0, prepared) else "prepare"
