"""Stores entries of the schedule for code, and steers them for operators. `coordinator.entries` is an `Entries`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Unpack

from coordinator.author import Acting, act_of, refuses_viewers
from coordinator.errors import InvalidJob, UnknownEntry
from coordinator.jobs.request import RequestMaker
from coordinator.jobs.validation import checks_arguments, printable, shown
from coordinator.scheduler import history
from coordinator.scheduler.entry import Entry, run_id, schedule_from
from coordinator.scheduler.entry_plan import COUNTED, EntryPlan, jitter_of
from coordinator.scheduler.history import EntryEvent
from coordinator.scheduler.quartz import Quartz
from coordinator.scheduler.schedules import Crontab, Given, Schedule, schedule_of, text_of
from coordinator.scheduler.zones import zone_name
from coordinator.store.client import Store
from coordinator.store.reading import FieldReader, reader_of, text_in
from coordinator.store.times import instant, moment, to_ms
from coordinator.store.values import ActNote, Json

_PAGE = 500
_LINES = 20  # of the history, among which the last tick is sought
_POLL = 0.05  # seconds between two looks whether a beat still sends


@dataclass(frozen=True, slots=True)
class EntryStatus:
    """An entry as beats know it now. Times are aware UTC datetimes.

    * when: the schedule that counts now, with zone, jitter and bounds; text: its expression alone.
    * since: the last instant that a beat took, or the time from which the entry counts. last: its last tick or run, if
      there was one. upcoming: the next instants, with the omitted instant among them.
    * paused, changed: who did it, when and why; other: the schedule that counts instead of its own. omitted: the
      instant that will not be sent.
    """

    name: str
    source: str
    task: str
    key: Json
    when: str
    text: str
    since: datetime | None
    upcoming: tuple[datetime, ...]
    paused: ActNote | None = None
    other: str = ""
    changed: ActNote | None = None
    omitted: datetime | None = None
    omitted_by: ActNote | None = None
    when_busy: str = "queue"
    misfire: str = "once"
    last: EntryEvent | None = None

    @property
    def next(self) -> datetime | None:
        """The next instant that a beat will send; None while the entry is paused."""
        sent = (at for at in self.upcoming if at != self.omitted)
        return None if self.paused else next(sent, None)


@checks_arguments
class Entries:
    """The entries of an installation. `by` is the host's name by default. A repeated act, save `change` and `put`, does
    nothing.
    """

    def __init__(self, store: Callable[[], Store], requests: Callable[[], RequestMaker]) -> None:
        self._store_of, self._requests_of = store, requests

    @property
    def _store(self) -> Store:
        return self._store_of()

    @refuses_viewers
    def put(self, entry: Entry, **acting: Unpack[Acting]) -> bool:
        """Store an entry, or another one under its name, for all beats. False: it is stored already.

        A new or changed entry counts from now. Raises InvalidJob where the entry is wrong, or where another source has
        that name.
        """
        if not isinstance(entry, Entry):
            raise InvalidJob(f"put takes an Entry(name, schedule, task, …), not {shown(entry)}")
        try:
            text = entry.to_json()
            plan = EntryPlan(Entry.from_json(text))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidJob(f"entry {getattr(entry, 'name', entry)!r}: {error}") from error
        entry.check_job(self._requests_of())
        following = plan.schedule.next(self._now())
        if following is None and not self._store.read("EXISTS", self._store.key("tick", entry.name)):
            raise InvalidJob(f"entry {entry.name!r}: no instant of {plan.schedule} is still to come")
        args = entry.name, text, plan.hash, 0 if following is None else to_ms(following), plan.about, act_of(**acting)
        return self._own(entry.name, *self._store.step("entry_put", *args))

    @refuses_viewers
    def remove(self, name: str, **acting: Unpack[Acting]) -> bool:
        """Take a stored entry away: once this returned, no beat sends it. False: there is none.

        Raises InvalidJob for an entry of another source.
        """
        return self._own(name, *self._store.step("entry_remove", name, act_of(**acting)))

    @refuses_viewers
    def pause(self, name: str, **acting: Unpack[Acting]) -> bool:
        """Send no tick of the entry until `resume`. False: it is paused already. Raises UnknownEntry.

        Once this returned, no beat sends one: for at most 5 seconds it waits for a beat that publishes an ordinary task
        at this moment.
        """
        act = act_of(**acting)
        new, left = self._store.step("entry_pause", name, act)
        while left > 0:
            self._store.pause(min(_POLL, left / 1000))
            left = self._store.step("entry_pause", name, act)[1]
        return self._known(name, new)

    @refuses_viewers
    def resume(self, name: str, **acting: Unpack[Acting]) -> bool:
        """Send ticks again; instants of the pause were not missed. False: it was not paused. Raises UnknownEntry."""
        following = next(iter(self.entry(name, 1).upcoming), None)
        at = 0 if following is None else to_ms(following)
        return self._known(name, self._store.step("entry_resume", name, at, act_of(**acting)))

    @refuses_viewers
    def skip_next(self, name: str, **acting: Unpack[Acting]) -> datetime:
        """Leave out the next instant, and return it. Raises UnknownEntry, and InvalidJob where there is none."""
        while True:
            upcoming = self.entry(name, 1).upcoming
            if not upcoming:
                raise InvalidJob(f"entry {name!r} has no next instant")
            verdict = self._store.step("entry_omit", name, to_ms(upcoming[0]), act_of(**acting))
            if verdict != -2:  # else a beat was faster
                self._known(name, verdict)
                return upcoming[0]

    @refuses_viewers
    def run_now(self, name: str, *, token: str | None = None, **acting: Unpack[Acting]) -> str:
        """Have a beat run the entry once, out of turn, within a second or two; return the id of its job or task.

        A paused entry runs, too. With one `token` it runs once, however often you ask. Raises UnknownEntry.
        """
        token = uuid.uuid4().hex if token is None else token
        if not isinstance(token, str) or not printable(token) or " " in token or len(token.encode()) > 64:
            raise InvalidJob(f"token {token!r}: give 1 to 64 bytes of text without blanks and control characters")
        self._known(name, self._store.step("entry_run", name, token, act_of(**acting)))
        return str(run_id(name, token))

    @refuses_viewers
    def change(self, name: str, schedule: Given, **acting: Unpack[Acting]) -> bool:
        """Give the entry another schedule until `restore`; it counts from now, in the entry's zone. False: it has it.

        Raises UnknownEntry, and InvalidJob for what is no schedule, or has another zone.
        """
        about = self._about(name)
        try:
            other, zone = schedule_of(schedule), str(about.get("zone", "UTC"))
            if isinstance(other, Quartz | Crontab) and not isinstance(schedule, str) and zone_name(other.tz) != zone:
                raise ValueError(f"its zone is {zone}, not {other.tz}; give an expression as text, in {zone}")
            text = text_of(other)
            if text is None:
                raise ValueError(f"{schedule!r} has no text by which Redis could keep it; give an expression")
            planned = schedule_from(about, text)
            if planned and planned.next(self._now()) is None:
                raise ValueError(f"no instant of {planned} is still to come")
        except (TypeError, ValueError) as error:
            raise InvalidJob(f"entry {name!r}: {error}") from error
        return self._rescheduled(name, text, planned, act_of(**acting))

    @refuses_viewers
    def restore(self, name: str, **acting: Unpack[Acting]) -> bool:
        """Give the entry its own schedule again; it counts from now. False: it has it. Raises UnknownEntry."""
        return self._rescheduled(name, "", schedule_from(self._about(name)), act_of(**acting))

    def _rescheduled(self, name: str, text: str, schedule: Schedule | None, act: str) -> bool:
        following = schedule.next(self._now()) if schedule else None
        at = 0 if following is None else to_ms(following)
        return self._known(name, self._store.step("entry_change", name, text, at, act))

    def entry(self, name: str, upcoming: int = 10) -> EntryStatus:
        """Read one entry, with so many of its next instants. Raises UnknownEntry."""
        entries = self._read([name], upcoming)
        if not entries:
            raise UnknownEntry(name)
        return entries[0]

    def all(self, prefix: str = "", most: int = 1000, after: str = "") -> list[EntryStatus]:
        """Read the entries whose names begin so, by name. `after`: the last name of the page before."""
        key, read = self._store.key, self._store.read
        sources = [name.decode() for name in read("SMEMBERS", key("schedule-sources"))]
        names = {name.decode() for source in sources for name in read("SMEMBERS", key("schedule-entries", source))}
        chosen = sorted(name for name in names if name.startswith(prefix) and name > after)[:most]
        pages = (chosen[start : start + _PAGE] for start in range(0, len(chosen), _PAGE))
        return [entry for page in pages for entry in self._read(page, 2)]  # the next may be omitted

    def history(self, name: str) -> list[EntryEvent]:
        """Read the outcomes of the entry's last hundred ticks, or ten where there are above 1,000 entries.

        Runs out of turn and operators' acts stand among them, the latest last. Raises UnknownEntry.
        """
        self._about(name)
        return history.read(name, self._store.read("LRANGE", self._store.key("ticks", name), 0, -1))

    def _read(self, names: list[str], upcoming: int) -> list[EntryStatus]:
        now = self._now()
        asked: list[tuple[str, ...]] = [("HGETALL", self._store.key("tick", name)) for name in names]
        lines = [("LRANGE", self._store.key("ticks", name), str(-_LINES), "-1") for name in names]
        replies = self._store.read_many([*asked, *lines])
        known = zip(names, replies, replies[len(names) :], strict=False)
        return [_scheduled(name, tick, lines, now, upcoming) for name, tick, lines in known if b"source" in tick]

    def _about(self, name: str) -> dict[str, Json]:
        """Read what beats noted about an entry: its source, task and schedule. Raises UnknownEntry."""
        about = self._store.read("HGET", self._store.key("tick", name), "about")
        if about is None:
            raise UnknownEntry(name)
        return _about_in(FieldReader({"about": text_in(about)}))

    def _now(self) -> datetime:
        return instant(self._store.clock().wall)

    def _own(self, name: str, verdict: int, source: bytes = b"") -> bool:
        if verdict < 0:
            raise InvalidJob(f"entry {name!r} is one of {source.decode()}: change it there, or give another name")
        return bool(verdict)

    def _known(self, name: str, verdict: int) -> bool:
        if verdict < 0:
            raise UnknownEntry(name)
        return bool(verdict)


def _scheduled(
    name: str, tick: Mapping[bytes, bytes], lines: Sequence[bytes], now: datetime, upcoming: int
) -> EntryStatus:  # fmt: skip
    reader = reader_of(tick)
    about = _about_in(reader)
    other, jitter = reader.record.get("other", ""), float(str(about.get("jitter", 0)))
    schedule = reader.get("other", partial(schedule_from, about), None) or schedule_from(about)
    last = reader.instant("last") or now
    if schedule is None:
        coming = [at] if (at := reader.instant("next")) and at > last else []
    else:
        coming = _upcoming(name, schedule, last, now, jitter, upcoming)
    return EntryStatus(
        name=name,
        source=reader.record["source"],
        task=str(about["task"]),
        key=about.get("key"),
        when=_when(other or str(about["schedule"]), about),
        text=other or str(about["schedule"]),
        since=last,
        upcoming=tuple(coming),
        other=other,
        omitted=reader.instant("omit"),
        omitted_by=reader.act("omitted"),
        when_busy=str(about.get("when_busy", "queue")),
        misfire=str(about.get("misfire", "once")),
        paused=reader.act("paused"),
        changed=reader.act("changed"),
        last=next((one for one in reversed(history.read(name, lines)) if one.kind != "act"), None),
    )


def _about_in(reader: FieldReader) -> dict[str, Json]:
    """What a beat says of the entry; of a damaged entry, nothing but that nobody knows its schedule."""
    return reader.json("about", dict) or {"task": "", "schedule": "", "opaque": True}


def _when(text: str, about: Mapping[str, Json]) -> str:
    zone, jitter = about.get("zone"), float(str(about.get("jitter", 0)))
    parts = [f"{text} ({zone})" if zone and not text.startswith("every ") else text]
    parts += [f"up to {jitter:g} s later"] if jitter else []
    bounds = (("from", "first"), ("until", "last"))
    parts += [f"{word} {moment(datetime.fromisoformat(str(about[name])))}" for word, name in bounds if name in about]
    return ", ".join(parts)


def _upcoming(name: str, schedule: Schedule, last: datetime, now: datetime, jitter: float, most: int) -> list[datetime]:
    """The next instants that no beat took and that are still to be sent."""
    instants: list[datetime] = []
    at = schedule.next(max(last, now - timedelta(seconds=jitter)))
    looked = 0
    while at is not None and len(instants) < most:
        if at + jitter_of(name, at, jitter) > now:
            instants.append(at)
        looked += 1
        at = schedule.next(at if looked < COUNTED else max(at, now))
    return instants
