"""The entries of the schedule, as code stores them and operators steer them. `coordinator.entries` is one `Entries`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from socket import gethostname

from kombu.utils.json import loads

from coordinator.errors import InvalidJob, UnknownEntry
from coordinator.jobs.options import Options
from coordinator.jobs.request import Requests
from coordinator.jobs.validation import printable
from coordinator.scheduler import history
from coordinator.scheduler.due import Plan, jitter_of
from coordinator.scheduler.entries import Entry, run_id, schedule_told
from coordinator.scheduler.history import Happening
from coordinator.scheduler.schedules import Given, Schedule, schedule_of, text_of
from coordinator.store.client import Store
from coordinator.store.times import instant, to_ms
from coordinator.store.values import Act, Json

_PAGE = 500
_POLL = 0.05  # seconds between two looks whether a beat still sends


@dataclass(frozen=True, slots=True)
class Scheduled:
    """An entry as beats know it now. Times are aware UTC datetimes.

    * words: its schedule in words, the one that counts now; text: as an expression.
    * since: the last instant that a beat took, or from when the entry counts. upcoming: the next instants; the one
      that operators omit stands among them.
    * paused, changed: who did it, when and why; other: the schedule that counts instead of its own. omitted: the
      instant that will not be sent.
    """

    name: str
    source: str
    task: str
    key: Json
    words: str
    text: str
    since: datetime | None
    upcoming: tuple[datetime, ...]
    paused: Act | None = None
    other: str = ""
    changed: Act | None = None
    omitted: datetime | None = None
    omitted_by: Act | None = None
    when_busy: str = "queue"
    misfire: str = "once"

    @property
    def next(self) -> datetime | None:
        """The next instant that a beat will send; None while the entry is paused."""
        sent = (at for at in self.upcoming if at != self.omitted)
        return None if self.paused else next(sent, None)


class Entries:
    """`by` is the host's name where you give none. Each act but `change` and `put` does nothing when it is repeated."""

    def __init__(self, store: Callable[[], Store], requests: Callable[[], Requests]) -> None:
        self._store_of, self._requests_of = store, requests

    @property
    def _store(self) -> Store:
        return self._store_of()

    def put(self, entry: Entry) -> bool:
        """Store an entry, or another one under its name, for all beats. False: it is stored already.

        A new or changed entry counts from now. Raises InvalidJob where it says something that cannot be, or where
        another source has that name.
        """
        try:
            text = entry.to_json()
            plan = Plan(Entry.from_json(text))
        except (TypeError, ValueError) as error:
            raise InvalidJob(f"entry {getattr(entry, 'name', entry)!r}: {error}") from error
        if entry.key is not None:
            signature = {"task": entry.task, "args": entry.args, "kwargs": entry.kwargs, "options": entry.options}
            asked: Options = {"when_busy": entry.when_busy, **entry.submit}
            if entry.instance:
                asked["instance"] = "an instant"
            self._requests_of().make(entry.key, signature, asked)
        following = plan.schedule.next(self._now())
        given = entry.name, text, plan.hash, 0 if following is None else to_ms(following), plan.about
        return self._own(entry.name, *self._store.step("entry_put", *given))

    def remove(self, name: str) -> bool:
        """Take a stored entry away: once this returned, no beat sends it. False: there is none.

        Raises InvalidJob for an entry of another source.
        """
        return self._own(name, *self._store.step("entry_remove", name))

    def pause(self, name: str, *, why: str = "", by: str | None = None) -> bool:
        """Send no tick of the entry until `resume`. False: it is paused already. Raises UnknownEntry.

        Once this returned, no beat sends one: for at most 5 seconds it waits for a beat that publishes an ordinary task
        at this moment.
        """
        act = name, why, by or gethostname()
        new, left = self._store.step("entry_pause", *act)
        while left > 0:
            time.sleep(min(_POLL, left / 1000))
            left = self._store.step("entry_pause", *act)[1]
        return self._known(name, new)

    def resume(self, name: str, *, why: str = "", by: str | None = None) -> bool:
        """Send ticks again; instants of the pause were not missed. False: it was not paused. Raises UnknownEntry."""
        following = next(iter(self.entry(name, 1).upcoming), None)
        at = 0 if following is None else to_ms(following)
        return self._known(name, self._store.step("entry_resume", name, at, why, by or gethostname()))

    def skip_next(self, name: str, *, why: str = "", by: str | None = None) -> datetime:
        """Have the next instant not be sent, and give it. Raises UnknownEntry, and InvalidJob where there is none."""
        while True:
            upcoming = self.entry(name, 1).upcoming
            if not upcoming:
                raise InvalidJob(f"entry {name!r} is never due again")
            verdict = self._store.step("entry_omit", name, to_ms(upcoming[0]), why, by or gethostname())
            if verdict != -2:  # else a beat was faster
                self._known(name, verdict)
                return upcoming[0]

    def run_now(self, name: str, *, token: str | None = None, why: str = "", by: str | None = None) -> str:
        """Have a beat run the entry once, out of turn, within a second or two; give the id of its job or task.

        A paused entry runs, too. With one `token` it runs once, however often you ask. Raises UnknownEntry.
        """
        asked = uuid.uuid4().hex if token is None else token
        if not isinstance(asked, str) or not printable(asked) or " " in asked or len(asked.encode()) > 64:
            raise InvalidJob(f"token {asked!r}: give 1 to 64 bytes of text without blanks and control characters")
        self._known(name, self._store.step("entry_run", name, asked, why, by or gethostname()))
        return str(run_id(name, asked))

    def change(self, name: str, schedule: Given, *, why: str = "", by: str | None = None) -> bool:
        """Give the entry another schedule until `restore`; it counts from now, in the entry's zone. False: it has it.

        Raises UnknownEntry, and InvalidJob for what is no schedule.
        """
        told = self._told(name)
        try:
            text = text_of(schedule_of(schedule))
            if text is None:
                raise ValueError(f"{schedule!r} has no text by which Redis could keep it; give an expression")
            found = schedule_told(told, text)
        except (TypeError, ValueError) as error:
            raise InvalidJob(f"entry {name!r}: {error}") from error
        return self._rescheduled(name, text, found, why, by)

    def restore(self, name: str, *, why: str = "", by: str | None = None) -> bool:
        """Give the entry its own schedule again; it counts from now. False: it has it. Raises UnknownEntry."""
        return self._rescheduled(name, "", schedule_told(self._told(name)), why, by)

    def _rescheduled(self, name: str, text: str, schedule: Schedule | None, why: str, by: str | None) -> bool:
        following = schedule.next(self._now()) if schedule else None
        at = 0 if following is None else to_ms(following)
        return self._known(name, self._store.step("entry_change", name, text, at, why, by or gethostname()))

    def entry(self, name: str, upcoming: int = 10) -> Scheduled:
        """Read one entry, with so many of its next instants. Raises UnknownEntry."""
        found = self._read([name], upcoming)
        if not found:
            raise UnknownEntry(name)
        return found[0]

    def all(self, prefix: str = "", most: int = 1000) -> list[Scheduled]:
        """Read the entries whose names begin so, by name."""
        key, read = self._store.key, self._store.read
        sources = [name.decode() for name in read("SMEMBERS", key("schedule-sources"))]
        names = {name.decode() for source in sources for name in read("SMEMBERS", key("schedule-entries", source))}
        chosen = sorted(name for name in names if name.startswith(prefix))[:most]
        pages = (chosen[start : start + _PAGE] for start in range(0, len(chosen), _PAGE))
        return [entry for page in pages for entry in self._read(page, 1)]

    def history(self, name: str) -> list[Happening]:
        """Read what became of the entry's last ticks: of a hundred, of ten where there are above 1,000 entries.

        Runs out of turn and operators' acts stand among them, the latest last. Raises UnknownEntry.
        """
        self._told(name)
        return history.read(name, self._store.read("LRANGE", self._store.key("ticks", name), 0, -1))

    def _read(self, names: list[str], upcoming: int) -> list[Scheduled]:
        now = self._now()
        ticks = self._store.read_many([("HGETALL", self._store.key("tick", name)) for name in names])
        known = ((name, tick) for name, tick in zip(names, ticks, strict=True) if b"source" in tick)
        return [_scheduled(name, tick, now, upcoming) for name, tick in known]

    def _told(self, name: str) -> dict[str, Json]:
        """Read what people are told of an entry. Raises UnknownEntry."""
        about = self._store.read("HGET", self._store.key("tick", name), "about")
        if about is None:
            raise UnknownEntry(name)
        told: dict[str, Json] = loads(about)
        return told

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


def _scheduled(name: str, tick: Mapping[bytes, bytes], now: datetime, upcoming: int) -> Scheduled:
    text = {field.decode(): value.decode() for field, value in tick.items()}
    about: dict[str, Json] = loads(text["about"]) if "about" in text else {"task": "", "schedule": "", "opaque": True}
    other, jitter = text.get("other", ""), float(str(about.get("jitter", 0)))
    schedule, last = schedule_told(about, other), instant(int(text["last"]))
    if schedule is None:
        coming = [instant(int(text["next"]))] if int(text.get("next", 0)) else []
    else:
        coming = _upcoming(name, schedule, last, now, jitter, upcoming)
    acts: dict[str, Act] = {field: loads(text[field]) for field in ("paused", "changed") if field in text}
    return Scheduled(
        name=name,
        source=text["source"],
        task=str(about["task"]),
        key=about.get("key"),
        words=_words(schedule, jitter) if schedule else str(about["schedule"]),
        text=other or str(about["schedule"]),
        since=last,
        upcoming=tuple(coming),
        other=other,
        omitted=instant(int(text["omit"])) if "omit" in text else None,
        omitted_by=loads(text["omitted"]) if "omitted" in text else None,
        when_busy=str(about.get("when_busy", "queue")),
        misfire=str(about.get("misfire", "once")),
        **acts,
    )


def _words(schedule: Schedule, jitter: float) -> str:
    """In words; few processes need them, or what they are made with."""
    said: str = import_module("coordinator.scheduler.words").words_of(schedule, jitter)
    return said


def _upcoming(name: str, schedule: Schedule, last: datetime, now: datetime, jitter: float, most: int) -> list[datetime]:
    """The next instants that no beat took and that are still to be sent."""
    found: list[datetime] = []
    at = schedule.next(max(last, now - timedelta(seconds=jitter)))
    while at is not None and len(found) < most:
        if at + jitter_of(name, at, jitter) > now:
            found.append(at)
        at = schedule.next(at)
    return found
