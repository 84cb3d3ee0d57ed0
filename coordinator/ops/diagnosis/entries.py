"""Explains why an entry of the schedule does not run, and what became of the entry's last tick."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from coordinator.core.finding import Finding
from coordinator.core.fleet.nodes import Node
from coordinator.core.store.client import Store
from coordinator.core.store.steps import clock_read
from coordinator.core.store.times import ClockReading, moment, span_text, to_ms
from coordinator.core.store.values import Json
from coordinator.errors import UnknownJob
from coordinator.ops.diagnosis.cause import Cause
from coordinator.ops.diagnosis.codes import BEAT, cause
from coordinator.ops.diagnosis.snapshot import Snapshot, at, by

if TYPE_CHECKING:  # explaining a job must not import the scheduler
    from coordinator.scheduler.history import EntryEvent
    from coordinator.scheduler.steering import Entries, EntryStatus

_SILENT = 10_000  # ms without a beat's confirmation, after which no beat sends a source (scheduler/beat.py, LAPSE)
_LATE = 5_000  # ms after which a due tick that no beat has sent counts as late
_UNKNOWN = re.compile(r"unknown task '([^']+)'")  # core/client/task_defaults.py
_STORED = "entries"  # the source of the entries that code stores (steps/entry.lua)


def of_entry(snapshot: Snapshot, entries: Entries, name: str) -> list[Cause]:
    """Return the causes of an entry, first those that keep the entry from running. Raises UnknownEntry."""
    entry, thing = entries.entry(name, 2), f"entry {name}"
    causes = []
    if entry.paused:
        causes.append(cause("entry.paused", thing, name=name, **by(entry.paused)))
    silent = _silent(snapshot.store, entry.source)
    if silent is None or silent > _SILENT:
        causes.append(cause("entry.beat", thing, source=entry.source, silent=silent and silent / 1000))
    unsent, following = snapshot.store.read("HMGET", snapshot.store.key("tick", name), "unsent", "next")
    if unsent:
        causes.append(cause("entry.unsent", thing, instant=at(int(unsent))))
    elif following and 0 < int(following) < snapshot.clock.wall - _LATE and not entry.paused:
        causes.append(cause("entry.late", thing, instant=at(int(following))))
    if entry.omitted and entry.omitted_by:
        causes.append(cause("entry.omitted", thing, omitted=at(to_ms(entry.omitted)), **by(entry.omitted_by)))
    last = _last(snapshot, entry, [event for event in entries.history(name) if event.kind != "act"])
    causes += last
    if entry.next is not None:
        broken = any(one.code == "entry.failed" for one in last)  # `entry-run` would fail as well
        facts: dict[str, Json] = snapshot.due(to_ms(entry.next)) | ({} if broken else {"name": name})
        causes.append(cause("entry.due", thing, **facts))
    elif not entry.paused:
        causes.append(cause("entry.over", thing))
    return causes


def _silent(store: Store, source: str) -> int | None:
    """Return the ms since a beat last confirmed that it sends the entries of a source; None: none ever did.

    The entries that code stored are sent by all beats, so for them the latest confirmation of any source counts.
    """
    names = _sources(store) if source == _STORED else [source]
    commands = [("HGET", store.key("schedule", name), "seen") for name in names]
    clock, *seen = store.read_many([clock_read.looking(store), *commands])
    return _least(ClockReading(*clock).now, seen)


def _least(now: int, seen: Sequence[bytes | None]) -> int | None:
    return min((now - int(at) for at in seen if at), default=None)


def _sources(store: Store) -> list[str]:
    return sorted(name.decode() for name in store.read("SMEMBERS", store.key("schedule-sources")))


def broken(entry: EntryStatus, living: Sequence[Node]) -> str:
    """Say why the ticks of an entry come to nothing, until somebody mends it; "" where nothing is known to be wrong.

    Only a job needs a node that has its task; the task of an entry without a key may run on other workers.
    """
    if entry.failing and entry.last:
        once = entry.failing == entry.last.at
        since = f"failed at {moment(entry.failing)}" if once else f"each tick since {moment(entry.failing)} failed"
        return f"{since}: {entry.last.error}" if entry.last.error else since
    unknown = entry.key is not None and living and not any(entry.task in node.tasks for node in living)
    return f"no node has the task {entry.task}" if unknown else ""


def of_beats(store: Store) -> Iterator[Finding]:
    """Find the sources, such as an app's `beat_schedule`, whose entries no beat sends."""
    names = _sources(store)
    commands = [("HGET", store.key("schedule", name), "seen") for name in names]
    counts = [("SCARD", store.key("schedule-entries", name)) for name in names]
    clock, *replies = store.read_many([clock_read.looking(store), *commands, *counts])
    seen = dict(zip(names, replies, strict=False))
    for source, count in zip(names, replies[len(names) :], strict=True):
        silent = _least(ClockReading(*clock).now, [*seen.values()] if source == _STORED else [seen[source]])
        if count and (silent is None or silent > _SILENT):
            for_ = "" if silent is None else f" for {span_text(silent / 1000)}"
            message = f"no beat has confirmed it{for_}: its entries ({count}) are not sent"
            yield Finding("warning", "beat.none", f"source {source}", message, BEAT)


def _last(snapshot: Snapshot, entry: EntryStatus, events: list[EntryEvent]) -> list[Cause]:
    """Return the cause that the last tick or run of an entry leaves: the tick was skipped, failed or missed, or its job
    is not over; [] otherwise. `events`: all ticks and runs, the latest last.
    """
    for event in events[-1:]:
        thing, instant = f"entry {entry.name}", at(to_ms(event.at))
        if event.word == "skipped":
            keys = [str(key) for key in (entry.key if isinstance(entry.key, list) else [entry.key])]
            return [cause("entry.skipped", thing, [f"lane {key}" for key in keys], instant=instant, key=keys[0])]
        if event.word == "missed":
            return [cause("entry.missed", thing, instant=instant)]
        if event.word == "failed":
            return [cause("entry.failed", thing, instant=instant, **_failed(events))]
        try:
            job = snapshot.lanes.job(event.job_id)
        except UnknownJob:
            return []
        if not job.over:
            return [cause("entry.job", thing, [f"job {job.id}"], instant=instant, job=job.id, state=job.state)]
    return []


def _failed(events: list[EntryEvent]) -> dict[str, Json]:
    """Return the facts of an entry whose last tick failed: why, and since which tick each one has failed."""
    failed = list(takewhile(lambda event: event.word == "failed", reversed(events)))
    error = failed[0].error
    unknown = _UNKNOWN.match(error)
    facts: dict[str, Json] = {"since" if len(failed) > 1 else "once": at(to_ms(failed[-1].at))}
    if unknown:
        return facts | {"error": f"nobody has the task {unknown[1]}", "mend": "Mend its name"}
    return facts | {"error": error.rstrip(".") or None, "mend": "Mend that"}
