"""What the time of a job was spent on, by its course and its causes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter

from coordinator.diagnosis.cause import Cause
from coordinator.diagnosis.snapshot import Snapshot
from coordinator.jobs.record import TERMINAL, Job
from coordinator.store.times import to_ms

_LINE = "waiting.lane"
# What a job waits for after an event of its course; an event that is not here changes nothing, an end ends it.
_AFTER = {"submitted": _LINE, "running": "running.job", "parked": "parked.results", "held": "held"}
_AFTER |= dict.fromkeys(("raised", "conflict", "timed_out"), "later.retry")
_AFTER |= dict.fromkeys(
    ("ready", "lost", "stopped", "handed", "step", "replaced", "woken", "retried", "rolling_back"), "waiting.slot"
)
_MARKS = ("waiting.paused", "waiting.closed")
_BESIDE = ("running.orphan", "running.stopping")  # the job runs all the same


def spent(look: Snapshot, job: Job, causes: Sequence[Cause]) -> dict[str, float]:
    """The seconds since the submit, by code. The last span counts for the first cause, which holds now; of a job in a
    lane that is paused or closed, its time since then counts for that.
    """
    ms: Counter[str] = Counter()
    code, since = "", 0.0
    for event in job.course:
        at = to_ms(event.at)
        ms[code] += round(at - since)
        code, since = _AFTER.get(event.what, "" if event.what in TERMINAL else code), at
    if not job.over and since:
        first = next(one.code for one in causes if one.code not in _BESIDE)
        now, begun = _mark(look, job, causes) or (first, 0.0)
        begun = max(since, begun)
        ms[_LINE if first in _MARKS else first] += round(begun - since)
        ms[now] += max(0, round(look.clock.now - begun))
    return {name: spent / 1000 for name, spent in ms.items() if name and spent > 0}


def _mark(look: Snapshot, job: Job, causes: Sequence[Cause]) -> tuple[str, float] | None:
    """The mark that an operator set on a lane of the job first, and since when, by the installation's clock."""
    ahead, lanes = look.clock.now - look.clock.wall, [f"lane {key}" for key in job.keys]
    since = {
        one.code: to_ms(datetime.fromisoformat(str(one.facts["since"]))) + ahead
        for one in causes if one.code in _MARKS and one.thing in lanes and one.facts.get("since")
    }  # fmt: skip
    return min(since.items(), key=itemgetter(1)) if since and job.state == "waiting" else None
