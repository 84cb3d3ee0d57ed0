"""The outcome of a run, as the result of its job."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from tasks.harvest.asked import SyncRequest

STORED = "stored"
_WORDS = 300
_BYTES = 64 * 1024


class SyncResult(BaseModel):
    """The counts of a run. `unchanged`: already stored. `postponed`: failed before, and left to a later run.

    `gone`: deleted by the member, as a complete pass found. `unreadable`: entries of the listing that were left out.
    """

    model_config = ConfigDict(frozen=True)

    member: str
    outcome: Literal["succeeded", "not synchronizable", "left alone", "reset meanwhile"]
    reason: str | None = None
    complete: bool = False
    listed: int = 0
    stored: int = 0
    unchanged: int = 0
    postponed: int = 0
    failed: int = 0
    gone: int = 0
    unreadable: int = 0
    last_harvested: datetime | None = None
    store: str | None = None
    """WRITTEN, or why the nodelist's permanent store lacks the new dates. None where there were no new dates."""
    pids: Mapping[str, str] = {}
    """For each requested pid: STORED, or why not. The catalog has those for which there was no room."""


def not_synchronizable(member: str, asked: SyncRequest, reason: str) -> SyncResult:
    ends = bounded(dict.fromkeys(asked.pids, reason))
    return SyncResult(member=member, outcome="not synchronizable", reason=reason, pids=ends)


def bounded(ends: Mapping[str, str]) -> dict[str, str]:
    """At most 64 KiB of these ends, failures first."""
    kept: dict[str, str] = {}
    size = 0
    for pid, end in sorted(ends.items(), key=lambda item: item[1] == STORED):
        size += len(pid.encode()) + len(end[:_WORDS].encode())
        if size > _BYTES:
            break
        kept[pid] = end[:_WORDS]
    return kept
