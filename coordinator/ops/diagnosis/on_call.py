"""Finds what waits for a person: jobs that are held, jobs in lanes that somebody paused, failures that no retry mends,
and requests that were refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from shlex import quote

from coordinator.core.finding import Finding
from coordinator.core.jobs import record
from coordinator.core.jobs.history import events_of
from coordinator.core.jobs.validation import shown_lane
from coordinator.core.store.bundle import beside
from coordinator.core.store.reading import act_in
from coordinator.core.store.times import span_text, to_ms
from coordinator.errors import CoordinatorError
from coordinator.ops.diagnosis.codes import command
from coordinator.ops.diagnosis.snapshot import Snapshot

_HELD = 100  # held jobs that are read to find the oldest
_PAUSED = 1000  # paused lanes in which the jobs are counted
_FAILED = 1000  # jobs that failed within the last hour whose losses are read
_HOUR = 3_600_000  # ms
_BROKER = 1.0  # seconds to wait for the broker's numbers
_WAITING = ("(-inf", "+inf")  # scores of the jobs of a line that were not started; its mark stands at -inf


def of_held(snapshot: Snapshot) -> Iterator[Finding]:
    """Find the jobs that an operator has to retry or cancel: one by its name, several by their number."""
    store = snapshot.store
    name = store.key("state", "held")
    count, drawn = store.read_many([("SCARD", name), ("SRANDMEMBER", name, _HELD)])
    ids = sorted(one.decode() for one in drawn)
    fields = record.fields_of_many(store, ids, "state", "course", "submitted")
    known = {job_id: since for job_id, one in zip(ids, fields, strict=True) if (since := _held_since(*one)) is not None}
    if not known:
        return
    oldest, since = min(known.items(), key=itemgetter(1))
    thing, age, values = f"job {oldest}", span_text((snapshot.clock.now - since) / 1000), {"id": oldest}
    if count == 1:
        message = f"it is held for an operator, who retries or cancels it, for {age}"
        yield Finding("warning", "job.held", thing, message, command("retry", values), "retry", values)
        return
    which = f"{count} jobs" if count == len(ids) else f"{len(ids)} drawn by chance from {count} jobs"
    message = f"it is the oldest of {which} that are held for an operator, who retries or cancels each: for {age}"
    yield Finding("warning", "job.held", thing, message, "coordinator jobs --state held")


def _held_since(state: str, course: str, submitted: str) -> float | None:
    """Return when a job was held, in ms; None if it is not held any more. Where the course has no such event, or is
    damaged, the job counts from its submit.
    """
    if state != "held":
        return None
    with suppress(Exception):  # a damaged course may raise any error
        return max(to_ms(event.at) for event in events_of(course, 0) if event.what == "held")
    return float(submitted) if submitted.isdecimal() else None


def of_paused(snapshot: Snapshot) -> Iterator[Finding]:
    """Find paused lanes in which jobs wait: how many, and since when, by whom and why the oldest of them is paused."""
    store = snapshot.store
    paused = store.key("paused")
    total, drawn = store.read_many([("HLEN", paused), ("HRANDFIELD", paused, _PAUSED)])
    keys = sorted(one.decode() for one in drawn)
    if not keys:
        return
    lines = [("ZCOUNT", store.key("line", key), *_WAITING) for key in keys]
    notes, *counts = store.read_many([("HMGET", paused, *keys), *lines])
    waiting = {key: count for key, count in zip(keys, counts, strict=True) if count}
    acts = {key: act for key, note in zip(keys, notes, strict=True) if key in waiting and (act := act_in(note))}
    if not acts:
        return
    key, act = min(acts.items(), key=lambda pair: pair[1]["at"])
    jobs, whole = sum(waiting.values()), total == len(keys)
    values, wait = {"key": key}, f"{jobs} jobs wait" if jobs > 1 else "1 job waits"
    message = f"it is paused, and {wait} in it"
    if len(waiting) > 1 or not whole:
        among = "" if whole else f"{len(keys)} drawn by chance from "
        message = f"it is the oldest of {len(waiting)} lanes, among {among}{total} paused ones, in which {wait}"
    age = span_text((snapshot.clock.wall - act["at"]) / 1000)
    message += f": for {age}, by {act['by']} ({act['why'] or 'no reason given'})"
    thing = f"lane {shown_lane(key)}"
    yield Finding("info", "lane.paused", thing, message, command("resume", values), "resume", values)


def of_faults(snapshot: Snapshot) -> Iterator[Finding]:
    """Find the jobs that ended within the last hour so that no retry is likely to help: their rollback failed, too, or
    their processes died more often than `max_losses` allows.
    """
    store, since = snapshot.store, snapshot.clock.now - _HOUR
    commands = [
        ("ZREVRANGEBYSCORE", store.key(name, state), "+inf", f"({since}", "LIMIT", 0, _FAILED)
        for state in ("double_fault", "failed")
        for name in ("ended", "ended-before")
    ]
    ended = [[one.decode() for one in members] for members in store.read_many(commands)]
    faults, failed = [*ended[0], *ended[1]], [*ended[2], *ended[3]]
    fields = record.fields_of_many(store, failed, "losses", "limits")
    lost = [job_id for job_id, (losses, limits) in zip(failed, fields, strict=True) if _is_lost(losses, limits)]
    if faults:
        message = f"{_last(faults)} failed within the last hour, and so did the rollback: work is half undone"
        fix = "coordinator jobs --state double_fault"
        yield Finding("warning", "job.double-fault", f"job {faults[0]}", message, fix)
    if lost:
        message = (
            f"{_last(lost)} failed within the last hour, after more than max_losses runs died with process or node"
        )
        fix = f"coordinator why -- {quote(lost[0])}"
        yield Finding("warning", "job.lost", f"job {lost[0]}", message, fix)


def _last(ids: Sequence[str]) -> str:
    """Name the first of these jobs, which is the last that failed, by what it shares with the others."""
    if len(ids) == 1:
        return "it"
    return f"it is the last of {'at least ' * (len(ids) >= _FAILED)}{len(ids)} jobs that"


def _is_lost(losses: str, limits: str) -> bool:
    """True if a job was lost more often than it may be. `limits`: max_attempts max_losses …"""
    most = limits.split(" ")[1:2]
    return losses.isdecimal() and most != [] and most[0].isdecimal() and int(losses) > int(most[0])


def of_refused(counts: Callable[[], Mapping[str, int]]) -> Iterator[Finding]:
    """Find the requests that an app's inboxes refused. `counts`: reads their number by queue; where the broker does not
    answer within a second, nothing is found.
    """
    with suppress(CoordinatorError, TimeoutError):
        for queue, count in beside(counts).result(_BROKER).items():
            if count:
                requests = f"{count} requests" if count > 1 else "1 request"
                message = f"its inbox refused {requests}, for an operator to requeue or discard"
                yield Finding("warning", "request.refused", f"queue {queue}", message, "coordinator refused")
