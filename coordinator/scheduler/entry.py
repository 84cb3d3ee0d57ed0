"""Periodic entries: their fields, the hash by which beats see that they have the same entry, and their form in Redis.

An entry is a keyed job (with a `key`: the beat submits it to that lane) or an ordinary task (the beat publishes it).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from difflib import get_close_matches
from typing import Literal, Unpack
from uuid import UUID

from coordinator.jobs.options import SubmitOptions
from coordinator.jobs.request import RequestMaker
from coordinator.jobs.validation import OwnId
from coordinator.scheduler.schedules import (
    Bounded,
    Given,
    Schedule,
    parse,
    schedule_of,
    text_of,
    zone_of,
)
from coordinator.scheduler.zones import zone_name, zone_named
from coordinator.store.client import Store
from coordinator.store.times import instant
from coordinator.store.values import Json
from coordinator.texts import check_name

Misfire = Literal["once", "all", "skip"]
_OPTIONS = {  # of `apply_async`, as far as an entry may name them
    "queue", "exchange", "routing_key", "priority", "expires", "headers", "serializer", "compression", "time_limit",
    "soft_time_limit", "countdown", "eta", "retry", "retry_policy", "ignore_result", "link", "link_error", "shadow",
    "needs", "reply_to", "argsrepr", "kwargsrepr", "delivery_mode", "stamped_headers", "task_id",
}  # fmt: skip
STORED = "entries"  # the source of the entries that code stores (steps/entry.lua)
MISFIRES = ("once", "all", "skip")


@dataclass(frozen=True)
class Entry:
    """One entry of the schedule.

    * options: Celery's (queue, expires, …). submit: further keywords of `Coordinator.submit`, with a key only.
    * instance: each tick is a grab of its instant, an instance of the key: the job does nothing where another process
      grabbed that instant (`Coordinator.grab`), and the other way round.
    * misfire: what becomes of instants that were missed while no beat ran. `once`: the latest of them is sent, late;
      `all`: each is sent, in order, the last `catch_up` of them; `skip`: none. None is sent that is older than the
      setting `misfire_grace`.
    * jitter: each instant is sent up to so many seconds later; a hash of name and instant says how much.
    * zone: the time zone of an expression that is given as text, such as "Europe/Berlin"; UTC where it is not named.
    * first, last: no instant before or after these; without a zone, they are in UTC.
    """

    name: str
    schedule: Given
    task: str
    args: Sequence[object] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    key: str | Sequence[str] | None = None
    when_busy: Literal["queue", "skip", "defer", "replace"] = "queue"
    submit: SubmitOptions = field(default_factory=SubmitOptions)
    instance: bool = False
    misfire: Misfire = "once"
    catch_up: int = 100
    jitter: float = 0.0
    zone: str | tzinfo | None = None
    first: datetime | None = None
    last: datetime | None = None

    def planned(self, other: str = "") -> Schedule:
        """Its schedule, or the one of the text `other` in its zone, within its first and last instant.

        Raises TypeError or ValueError where the entry is wrong.
        """
        check_name("entry", self.name)
        self._check_call()
        if self.misfire not in MISFIRES:
            raise ValueError(f"misfire is one of {', '.join(MISFIRES)}, not {self.misfire!r}")
        if not isinstance(self.catch_up, int) or isinstance(self.catch_up, bool) or not 0 <= self.catch_up <= 10_000:
            raise ValueError(f"catch_up is a number of instants from 0 to 10000, not {self.catch_up!r}")
        if not isinstance(self.jitter, int | float) or not 0 <= self.jitter <= 86400:
            raise ValueError(f"jitter is 0 to 86400 seconds, not {self.jitter!r}")
        if self.key is None and (self.instance or self.submit or self.when_busy != "queue"):
            raise ValueError("instance, submit and when_busy are for an entry with a key")
        zone = zone_named(self.zone) if isinstance(self.zone, str) else self.zone
        own = schedule_of(self.schedule, zone)
        schedule = parse(other, zone or zone_of(own)) if other else own
        if self.first is None and self.last is None:
            return schedule
        return Bounded(schedule, *(None if at is None else _aware(at) for at in (self.first, self.last)))

    def _check_call(self) -> None:
        if not isinstance(self.task, str):
            raise TypeError(f"task is the name of a task, not {self.task!r}")
        check_name("task", self.task)
        if isinstance(self.args, str | bytes) or not isinstance(self.args or (), Sequence):
            raise TypeError(f"args is a list of arguments, not {self.args!r}")
        for name in ("kwargs", "options", "submit"):
            if not isinstance(getattr(self, name) or {}, Mapping):
                raise TypeError(f"{name} is a table by names, not {getattr(self, name)!r}")
        if isinstance(queue := (self.options or {}).get("queue"), str):
            check_name("queue", queue)
        for wrong in set(self.options or {}) - _OPTIONS:  # one unlike all of them may be a property of the message
            if near := get_close_matches(str(wrong), _OPTIONS, 1, 0.75):
                raise TypeError(f"there is no option {wrong!r}; did you mean {near[0]!r}?")

    @property
    def asked(self) -> SubmitOptions:
        """The options of its job's submit; of an entry with `instance`, without the instant."""
        return {"when_busy": self.when_busy, **self.submit}

    def check_job(self, requests: RequestMaker, **more: Unpack[SubmitOptions]) -> None:
        """Raise InvalidJob if the entry has a key and no job can be made of it."""
        if self.key is not None:
            signature = {"task": self.task, "args": self.args, "kwargs": self.kwargs, "options": self.options}
            instance: SubmitOptions = {"instance": "an instant"} if self.instance else {}
            requests.make(self.key, signature, {**self.asked, **instance, **more})

    def hash(self, schedule: Schedule) -> str:
        """Hash the whole entry. Raises TypeError or ValueError where a part has no JSON form."""
        what = [self.task, self.args, self.kwargs, self.options, self.key, self.when_busy, self.submit]
        if more := self._more():
            what.append(more)
        return digest(json.dumps((self.name, str(schedule), *what), sort_keys=True, default=_plain))

    def _more(self) -> dict[str, object]:
        """The fields that few entries set. The schedule has the zone and the bounds."""
        return {name: getattr(self, name) for name in _SELDOM if getattr(self, name) != _DEFAULTS[name]}

    def about(self, schedule: Schedule) -> str:
        """The JSON by which any process shows the entry to people: its schedule, its bounds, and what it starts."""
        values = self._texts(schedule)
        about = {
            name: value for name, value in values.items() if name not in ("name", "args", "kwargs", "options", "submit")
        }
        if about["schedule"] is None:
            inner = schedule.schedule if isinstance(schedule, Bounded) else schedule
            about |= {"schedule": str(inner), "opaque": True}
        return json.dumps(about, default=_plain)

    def to_json(self) -> str:
        """Write the entry as Redis keeps it. Raises TypeError or ValueError where a part has no JSON form."""
        own = schedule_of(self.schedule, zone_named(self.zone) if isinstance(self.zone, str) else self.zone)
        values = self._texts(own)
        if values["schedule"] is None:
            raise ValueError(f"{own} has no text by which Redis could keep it; give an expression")
        try:
            return json.dumps(values)
        except (TypeError, ValueError) as error:
            raise ValueError(f"an argument or option has no JSON form: {error}") from error

    def _texts(self, schedule: Schedule) -> dict[str, object]:
        """The fields that are set, with texts for the schedule, its zone and its bounds."""
        inner = schedule.schedule if isinstance(schedule, Bounded) else schedule
        zone = zone_name(zone_of(inner))
        values: dict[str, object] = {part.name: getattr(self, part.name) for part in fields(self)}
        values |= {"schedule": text_of(inner), "zone": None if zone == "UTC" else zone}
        values |= {name: _aware(at).isoformat() for name in ("first", "last") if (at := getattr(self, name))}
        return {name: value for name, value in values.items() if value != _DEFAULTS[name]}

    @classmethod
    def from_table(cls, name: str, row: object) -> Entry:
        """Read an entry of the table `beat_schedule`. Raises TypeError for missing or unknown fields."""
        if not isinstance(row, Mapping):
            raise TypeError(f"{row!r} is no entry: write {{'task': …, 'schedule': …}}")
        known = [part.name for part in fields(cls)]
        for wrong in (name for name in row if name not in known):
            near = get_close_matches(str(wrong), known, 1)
            raise TypeError(f"there is no field {wrong!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        for needed in ("task", "schedule"):
            if needed not in row:
                raise TypeError(f"the field {needed!r} is missing")
        return cls(**{"name": name, **row})

    @classmethod
    def from_json(cls, text: str | bytes) -> Entry:
        values = json.loads(text)
        for name in ("first", "last"):
            if values.get(name):
                values[name] = datetime.fromisoformat(values[name])
        return cls(**values)


_DEFAULTS: dict[str, object] = {
    part.name: part.default if part.default_factory is MISSING else part.default_factory() for part in fields(Entry)
}
_SELDOM = ("misfire", "catch_up", "jitter", "instance")


def schedule_from(about: Mapping[str, Json], other: str = "") -> Schedule | None:
    """Read the schedule from an entry's `about`; None for an author's own class of schedule."""
    if about.get("opaque") and not other:
        return None
    schedule = parse(other or str(about["schedule"]), zone_named(str(about.get("zone", "UTC"))))
    first, last = (datetime.fromisoformat(str(about[name])) if name in about else None for name in ("first", "last"))
    return Bounded(schedule, first, last) if first or last else schedule


def _aware(at: datetime) -> datetime:
    """Put an instant without a zone in UTC."""
    if not isinstance(at, datetime):
        raise TypeError(f"{at!r} is no instant: give a datetime")
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _plain(value: object) -> str:
    if isinstance(value, date | UUID | Decimal | timedelta):
        return str(value)
    raise TypeError(f"argument {value!r} has no JSON form")


def tick_id(name: str, at: datetime) -> OwnId:
    """The id of the job or task of one tick, the same in every beat. `submit` refuses it to everybody else."""
    precision = "milliseconds" if at.microsecond else "seconds"
    return OwnId(f"{name}@{at.astimezone(UTC).isoformat(timespec=precision).replace('+00:00', 'Z')}")


def run_id(name: str, token: str) -> OwnId:
    """The id of the job or task of a run out of turn."""
    return OwnId(f"{name}@run:{token}")


def next_tick(store: Store, name: str) -> datetime | None:
    """The instant at which the entry is due next; None when no beat knows it, or when it is never due again."""
    return next_ticks(store, [name])[0]


def next_ticks(store: Store, names: Sequence[str]) -> list[datetime | None]:
    """The same of many entries, in one round trip."""
    replies = store.read_many([("HGET", store.key("tick", name), "next") for name in names]) if names else ()
    return [instant(int(at)) if at and int(at) else None for at in replies]
