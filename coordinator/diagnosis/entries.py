"""The causes why an entry of the schedule does not run, and what became of its last tick."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coordinator.diagnosis.cause import Cause
from coordinator.diagnosis.codes import BEAT, cause
from coordinator.diagnosis.finding import Finding
from coordinator.diagnosis.snapshot import Snapshot, at, by
from coordinator.errors import UnknownJob
from coordinator.store.client import Store
from coordinator.store.times import span_text, to_ms
from coordinator.store.values import Json

if TYPE_CHECKING:  # a job's causes need no schedule
    from coordinator.scheduler.history import EntryEvent
    from coordinator.scheduler.steering import Entries, EntryStatus

_SILENT = 10_000  # ms after which no beat stands for a source (scheduler/beat.py, LAPSE)
_LATE = 5_000  # ms
_STORED = "entries"  # the source of the entries that code stores (steps/entry.lua)


def of_entry(look: Snapshot, entries: Entries, name: str) -> list[Cause]:
    """The causes of an entry, those first that keep it from running. Raises UnknownEntry."""
    entry, thing = entries.entry(name, 2), f"entry {name}"
    causes = []
    if entry.paused:
        causes.append(cause("entry.paused", thing, name=name, **by(entry.paused)))
    silent = _silent(look.store, entry.source)
    if silent is None or silent > _SILENT:
        causes.append(cause("entry.beat", thing, source=entry.source, silent=silent and silent / 1000))
    unsent, following = look.store.read("HMGET", look.store.key("tick", name), "unsent", "next")
    if unsent:
        causes.append(cause("entry.unsent", thing, instant=at(int(unsent))))
    elif following and 0 < int(following) < look.clock.wall - _LATE and not entry.paused:
        causes.append(cause("entry.late", thing, instant=at(int(following))))
    if entry.omitted and entry.omitted_by:
        causes.append(cause("entry.omitted", thing, omitted=at(to_ms(entry.omitted)), **by(entry.omitted_by)))
    last = _last(look, entry, [event for event in entries.history(name) if event.kind != "act"][-1:])
    causes += last
    if entry.next is not None:
        broken = any(one.code == "entry.failed" for one in last)  # a run now would fail as well
        facts: dict[str, Json] = look.due(to_ms(entry.next)) | ({} if broken else {"name": name})
        causes.append(cause("entry.due", thing, **facts))
    elif not entry.paused:
        causes.append(cause("entry.over", thing))
    return causes


def _silent(store: Store, source: str) -> int | None:
    """The time (ms) since a beat stood for the source. All beats send the entries that code stored."""
    names = _sources(store) if source == _STORED else [source]
    seen = store.read_many([("HGET", store.key("schedule", one), "seen") for one in names])
    now = store.now()
    return min((now - int(one) for one in seen if one), default=None)


def _sources(store: Store) -> list[str]:
    return sorted(one.decode() for one in store.read("SMEMBERS", store.key("schedule-sources")))


def of_beats(store: Store) -> Iterator[Finding]:
    """The sources whose entries no beat sends."""
    for source in _sources(store):
        count, silent = store.read("SCARD", store.key("schedule-entries", source)), _silent(store, source)
        if count and (silent is None or silent > _SILENT):
            for_ = "" if silent is None else f" for {span_text(silent / 1000)}"
            said = f"no beat has stood for it{for_}: its entries ({count}) are not sent"
            yield Finding("warning", "beat.none", f"source {source}", said, BEAT)


def _last(look: Snapshot, entry: EntryStatus, events: list[EntryEvent]) -> list[Cause]:
    """What became of its last tick or run."""
    for event in events:
        thing, instant = f"entry {entry.name}", at(to_ms(event.at))
        if event.word == "skipped":
            keys = [str(key) for key in (entry.key if isinstance(entry.key, list) else [entry.key])]
            return [cause("entry.skipped", thing, [f"lane {key}" for key in keys], instant=instant, key=keys[0])]
        if event.word in ("failed", "missed"):
            facts: dict[str, Json] = {"error": event.error} if event.error else {}
            return [cause(f"entry.{event.word}", thing, instant=instant, **facts)]
        try:
            job = look.lanes.job(event.job_id)
        except UnknownJob:
            return []
        if not job.over:
            return [cause("entry.job", thing, [f"job {job.id}"], instant=instant, job=job.id, state=job.state)]
    return []
