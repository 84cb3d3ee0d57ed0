"""Breaks the age of a job down by the codes of what the job waited for, from the job's events and its causes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter

from coordinator.core.jobs.record import TERMINAL, Job
from coordinator.core.store.times import to_ms
from coordinator.ops.diagnosis.cause import Cause
from coordinator.ops.diagnosis.snapshot import Snapshot

_LINE = "waiting.lane"
# Event of a job -> code of what the job waits for afterwards. Other events change nothing; after an end nothing counts.
_AFTER = {"submitted": _LINE, "running": "running.job", "parked": "parked.results", "held": "held"}
_AFTER |= dict.fromkeys(("raised", "conflict", "cooled_down", "timed_out"), "later.retry")
_AFTER |= dict.fromkeys(
    ("ready", "lost", "stopped", "handed", "step", "replaced", "woken", "retried", "rolling_back"), "waiting.slot"
)
_MARKS = ("waiting.paused",)
_QUOTAS = ("waiting.quota", "waiting.rate", "waiting.cooldown", "waiting.ready")
_BESIDE = ("running.orphan", "running.stopping")  # the job runs all the same


def spent(snapshot: Snapshot, job: Job, causes: Sequence[Cause]) -> dict[str, float]:
    """The seconds since the submit, by code. The last span counts for the first cause, which holds now. In a paused
    lane, the time since the pause counts for the pause; of a job that lacks a quota, the time since then for that.
    """
    ms: Counter[str] = Counter()
    code, since = "", 0.0
    for event in job.course:
        at = to_ms(event.at)
        ms[code] += round(at - since)
        code, since = _AFTER.get(event.what, "" if event.what in TERMINAL else code), at
    if not job.over and since:
        first = next(cause.code for cause in causes if cause.code not in _BESIDE)
        lacked = _lacked(snapshot, job, causes)
        now, begun = _mark(snapshot, job, causes) or lacked or (first, 0.0)
        begun = max(since, begun)
        ms[code if lacked else _LINE if first in _MARKS else first] += round(begun - since)
        ms[now] += max(0, round(snapshot.clock.now - begun))
    return {name: spent / 1000 for name, spent in ms.items() if name and spent > 0}


def _mark(snapshot: Snapshot, job: Job, causes: Sequence[Cause]) -> tuple[str, float] | None:
    """The oldest pause of the job's lanes, and since when, by the installation's clock."""
    ahead, lanes = snapshot.clock.now - snapshot.clock.wall, [f"lane {key}" for key in job.keys]
    since = {
        cause.code: to_ms(datetime.fromisoformat(str(cause.facts["since"]))) + ahead
        for cause in causes if cause.code in _MARKS and cause.thing in lanes and cause.facts.get("since")
    }  # fmt: skip
    return min(since.items(), key=itemgetter(1)) if since and job.state == "waiting" else None


def _lacked(snapshot: Snapshot, job: Job, causes: Sequence[Cause]) -> tuple[str, float] | None:
    """Why a job lacks a quota, and since when, by the installation's clock."""
    [[since]] = snapshot.fields([job.id], "lacked") if job.lacks else [[""]]
    code = next((cause.code for cause in causes if cause.code in _QUOTAS), None)
    return (code, float(since)) if code and since.isdecimal() else None
