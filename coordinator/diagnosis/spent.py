"""What the time of a job was spent on: its course; and for its time in line, what operators did to its lanes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from coordinator.diagnosis.cause import Cause
from coordinator.diagnosis.snapshot import Snapshot
from coordinator.jobs.record import TERMINAL, Job
from coordinator.jobs.trail import Action, newest_first
from coordinator.lanes import view
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

Since = tuple[float, str]


def spent(look: Snapshot, job: Job, causes: Sequence[Cause]) -> dict[str, float]:
    """The seconds since the submit, by code. The last span counts for the first cause, which holds now."""
    ms: Counter[str] = Counter()
    code, since, in_line = "", 0.0, list[tuple[float, float]]()
    for event in job.course:
        at = to_ms(event.at)
        if code == _LINE:
            in_line.append((since, at))
        else:
            ms[code] += round(at - since)
        code, since = _AFTER.get(event.what, "" if event.what in TERMINAL else code), at
    if job.state == "waiting" and since:
        in_line.append((since, look.clock.now))
    elif not job.over and since:
        now = next(one.code for one in causes if one.code not in _BESIDE)
        ms[now] += max(0, round(look.clock.now - since))
    if in_line:
        marks = _in_line(look, job, causes[0].code if job.state == "waiting" else _LINE)
        for begun, ended in in_line:
            for mark, kind in marks:
                ms[kind] += max(0, round(ended - max(begun, mark)))
                ended = min(ended, mark)
    return {name: spent / 1000 for name, spent in ms.items() if name and spent > 0}


def _in_line(look: Snapshot, job: Job, now: str) -> list[Since]:
    """From when on which rule kept the job in line, the latest first: the lanes as they are, and back by the trail."""
    lanes = {lane.key: (lane.paused, lane.limit) for lane in view.look(look.store, job.keys, 1)}
    found, begin, ahead = list[Since](), float(to_ms(job.course[0].at)), float(look.clock.now - look.clock.wall)
    for action in newest_first(look.store):
        if (at := to_ms(action.at) + ahead) < begin:
            break
        for key in _hit(action, lanes):
            rule = _rule(job, lanes.values())
            found.append((at, rule if found or rule in _MARKS else now))
            paused, limit = lanes[key]
            if action.act == "limit":
                lanes[key] = paused, int(action.before) if action.before.isdecimal() else 1
            else:
                lanes[key] = action.before == "paused" or action.act == "resume", limit
    rule = _rule(job, lanes.values())
    return [*found, (0.0, rule if found or rule in _MARKS else now)]


def _hit(action: Action, keys: Iterable[str]) -> list[str]:
    """Those of the keys whose lanes the act steered: one, or all that begin so (lanes/bulk.py)."""
    if action.act not in ("pause", "resume", "limit") or action.kind not in ("lane", "lanes"):
        return []
    name = action.name.partition("key=")[2] if action.kind == "lanes" else action.name
    prefix = name.removesuffix("*") if action.kind == "lanes" and name.endswith(("/", "*")) else None
    return [key for key in keys if (key == name if prefix is None else key.startswith(prefix))]


def _rule(job: Job, lanes: Iterable[tuple[bool, int]]) -> str:
    paused, limits = zip(*lanes, strict=True)
    if any(paused):
        return "waiting.paused"
    if 0 in limits:
        return "waiting.closed"
    return _LINE if max(limits) == 1 else "waiting.alone" if job.exclusive else "waiting.limit"
