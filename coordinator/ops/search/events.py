"""Reads events for people: all that are waited for or set, or one with the jobs that wait for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from kombu.utils.json import loads

from coordinator.core.events.event import Kept, kept_in
from coordinator.core.jobs.after import EVENT
from coordinator.core.jobs.record import fields_of_many
from coordinator.core.store.client import Store
from coordinator.core.store.reading import text_in
from coordinator.core.store.times import instant
from coordinator.core.store.values import Json
from coordinator.core.store.wire import Arg
from coordinator.errors import InvalidJob
from coordinator.ops.search.jobs import scored

_PORTION = 1000
_MOST_READ = 10_000  # names that one page reads
_Place = tuple[str, int, str]  # of an event among all: "waited" or "set", until when it is kept (ms), its name


@dataclass(frozen=True, slots=True)
class EventRecord:
    """An event at one moment. `waiting`: how many jobs wait for it. `at`: when it was set, None = it is not; then
    `value`, `by`, `why` and `until`, when Redis forgets it, are None, too.
    """

    name: str
    waiting: int
    at: datetime | None = None
    value: Json = None
    by: str | None = None
    why: str | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Events:
    """A page of events: those for which jobs wait, by name, and then those that are set, the latest first. `after`: ask
    with it for the next page; "" = this is the last one.
    """

    events: tuple[EventRecord, ...]
    after: str = ""


@dataclass(frozen=True, slots=True)
class EventWaiter:
    """A job that waits for an event. `state`: `blocked` before it began, `parked` in the middle, or `held`. `task`: the
    one that is to run. `until`: when a parked job waits no longer.
    """

    job_id: str
    state: str
    task: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class EventStatus:
    """An event, and at most as many of the jobs that wait for it as the caller wanted, in their order."""

    event: EventRecord
    waiters: tuple[EventWaiter, ...]


def page(store: Store, prefix: str, most: int, after: str) -> Events:
    """Read a page of events whose names begin with `prefix`. It reads at most 10,000 names, and `after` goes on there.
    Raises InvalidJob for a wrong cursor.
    """
    found: list[_Place] = []
    last: _Place | None = None
    for number, place in enumerate(_places(store, _place(after))):
        if len(found) > most or number == _MOST_READ:
            break
        last = place
        if place[2].startswith(prefix):
            found.append(place)
    else:
        last = None
    if len(found) > most:
        found, last = found[:most], found[most - 1]
    return Events(tuple(_records(store, found)), "" if last is None else _cursor(last))


def status_of(store: Store, name: str, most: int) -> EventStatus:
    """Read an event and at most `most` of the jobs that wait for it."""
    until = store.read("ZSCORE", store.key("events"), name)
    [record] = _records(store, [("set", int(float(until or 0)), name)])
    ids = [one.decode() for one in store.read("ZRANGE", store.key("dependants", EVENT + name), 0, most - 1)]
    ends = store.read("ZMSCORE", store.key("timeouts"), *ids) if ids else ()
    states, clock = fields_of_many(store, ids, "state", "task", "then"), store.clock()
    waiters = []
    for job_id, (state, task, then), end in zip(ids, states, ends, strict=True):
        until_ = None if end is None else instant(float(end) - clock.now + clock.wall)
        waiters.append(EventWaiter(job_id, state, then.split("\n")[1] if then else task, until_))
    return EventStatus(record, tuple(waiters))


def _places(store: Store, after: _Place) -> Iterator[_Place]:
    """Yield the places of all events behind `after`. An event that is set meanwhile moves to a later place."""
    kind, until, name = after
    key, start = store.key("events"), 0
    while kind == "waited":
        names = [text_in(one) for one in store.read("ZRANGEBYSCORE", key, 0, 0, "LIMIT", start, _PORTION)]
        yield from (("waited", 0, one) for one in names if one > name)
        start += len(names)
        if len(names) < _PORTION:
            kind, until = "set", 0
            break
    start = 0
    while True:
        highest: Arg = until or "+inf"
        found = store.read("ZREVRANGEBYSCORE", key, highest, "(0", "WITHSCORES", "LIMIT", start, _PORTION)
        for one, score in scored(found):
            place = "set", int(score), text_in(one)
            if not until or place[1:] < (until, name):
                yield place
        start += _PORTION
        if len(found) < _PORTION:
            return


def _records(store: Store, places: Sequence[_Place]) -> Iterator[EventRecord]:
    asked: list[Sequence[Arg]] = []
    for _, _, name in places:
        asked += [("HGETALL", store.key("event", name)), ("ZCARD", store.key("dependants", EVENT + name))]
    replies = store.read_many(asked) if asked else []
    for (_, until, name), fields, waiting in zip(places, replies[::2], replies[1::2], strict=True):
        yield _record(name, waiting, kept_in(fields), until)


def _record(name: str, waiting: int, kept: Kept | None, until: int) -> EventRecord:
    if kept is None:
        return EventRecord(name, waiting)
    return EventRecord(name, waiting, kept.at, loads(kept.value), kept.by, kept.why, instant(until) if until else None)


def _cursor(place: _Place) -> str:
    kind, until, name = place
    return f"{kind} {until} {name}"


def _place(after: str) -> _Place:
    if not after:
        return "waited", 0, ""
    kind, _, rest = after.partition(" ")
    until, _, name = rest.partition(" ")
    if kind not in ("waited", "set") or not until.isdecimal():
        raise InvalidJob(f"after {after!r}: give the `after` of a page of events")
    return kind, int(until), name
