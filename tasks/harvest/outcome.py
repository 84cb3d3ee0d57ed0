"""The result of a job that synchronizes a member: counts of objects, and the outcome of each requested pid."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from tasks.harvest.sync_request import SyncRequest

STORED = "stored"
_WORDS = 300
_BYTES = 64 * 1024


class SyncResult(BaseModel):
    """The result of a sync; its counts are numbers of objects.

    `unchanged`: the catalog had them already. `postponed`: they failed in an earlier run; a later run tries again.
    `gone`: the member has deleted them. `unreadable`: entries of the listing that were left out. `complete`: all
    objects were listed. `last_harvested`: the date until which the member is harvested now.
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
    """WRITTEN, or why the nodelist's permanent store lacks the new harvest dates; None: there are no new dates."""
    pids: Mapping[str, str] = {}
    """For each requested pid: STORED, or why it is not stored. The catalog has the failures that do not fit here."""


def not_synchronizable(member: str, request: SyncRequest, reason: str) -> SyncResult:
    results = bounded(dict.fromkeys(request.pids, reason))
    return SyncResult(member=member, outcome="not synchronizable", reason=reason, pids=results)


def bounded(results: Mapping[str, str]) -> dict[str, str]:
    """The results by pid, shortened to 64 KiB: failures come first, and long reasons are cut."""
    kept: dict[str, str] = {}
    size = 0
    for pid, result in sorted(results.items(), key=lambda item: item[1] == STORED):
        size += len(pid.encode()) + len(result[:_WORDS].encode())
        if size > _BYTES:
            break
        kept[pid] = result[:_WORDS]
    return kept
