"""The class `Entry` of a periodic entry: its fields, its JSON in Redis, and the hash by which beats compare entries.

    coordinator.entries.put(Entry("sync", 60, "shop.sync", key="sync/a"))

A beat submits an entry with a `key` as a job to the lane of that key, and publishes the task of an entry without a key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from difflib import get_close_matches
from typing import Literal, Unpack
from uuid import UUID

from coordinator.core.jobs.options import SubmitOptions, Use
from coordinator.core.jobs.request import RequestMaker
from coordinator.core.jobs.validation import OwnId
from coordinator.core.store.client import Store
from coordinator.core.store.times import instant
from coordinator.core.store.values import Json
from coordinator.core.texts import check_name
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

Misfire = Literal["once", "all", "skip"]
_OPTIONS = {  # options of `apply_async` that an entry may have
    "queue", "exchange", "routing_key", "priority", "expires", "headers", "serializer", "compression", "time_limit",
    "soft_time_limit", "countdown", "eta", "retry", "retry_policy", "ignore_result", "link", "link_error", "shadow",
    "needs", "reply_to", "argsrepr", "kwargsrepr", "delivery_mode", "stamped_headers", "task_id",
}  # fmt: skip
STORED = "entries"  # the source's name of the entries that code stores in Redis (steps/entry.lua)
MISFIRES = ("once", "all", "skip")


@dataclass(frozen=True)
class Entry:
    """A periodic entry of the schedule: what a beat submits or publishes at which instants.

    * schedule: seconds, a Quartz expression, a timedelta, or Celery's `schedule`, `crontab` or `solar`.
    * options: options of Celery's `apply_async` (queue, expires, …).
    * key: the lane of the job; None: the beat publishes an ordinary task. Only with a key: when_busy: what happens if
      the lane is busy; submit: further keywords of `Coordinator.submit`.
    * instance: True: the job runs only if no other process has grabbed the tick's instant as an instance of the key
      (`Coordinator.grab`).
    * misfire: which of the instants that passed while no beat ran are sent later. `once`: the latest; `all`: the last
      `catch_up` of them, in order; `skip`: none. Instants older than the setting `misfire_grace` are never sent.
    * jitter: each instant is delayed by 0 to so many seconds, computed from a hash of name and instant.
    * zone: the time zone of a `schedule` given as text, such as "Europe/Berlin"; None: UTC.
    * first, last: the entry has no instants before `first` or after `last`; without a zone, they are in UTC.
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
        """Check the entry, and make its schedule, limited to `first` and `last`.

        `other`: the text of a schedule to use in place of the entry's own, in the same zone; "": the entry's own.
        Raises TypeError or ValueError for an invalid entry.
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
                raise TypeError(f"{name} must be a mapping, not {getattr(self, name)!r}")
        if {"after", "on_failure_of"} & {*(self.submit or {})}:
            raise TypeError("submit has after, which names causes of one job, and an entry makes many")
        if isinstance(queue := (self.options or {}).get("queue"), str):
            check_name("queue", queue)
        for wrong in set(self.options or {}) - _OPTIONS:  # a name unlike all of these may be a property of the message
            if near := get_close_matches(str(wrong), _OPTIONS, 1, 0.75):
                raise TypeError(f"there is no option {wrong!r}; did you mean {near[0]!r}?")

    @property
    def submit_options(self) -> SubmitOptions:
        """The keywords for `Coordinator.submit` that all ticks of this entry share; `instance` is not among them."""
        return {"when_busy": self.when_busy, **self.submit}

    def check_job(self, requests: RequestMaker, **more: Unpack[SubmitOptions]) -> None:
        """Raise InvalidJob if the entry has a key, and `submit` would refuse its job. `more`: further
        submit options.
        """
        if self.key is not None:
            signature = {"task": self.task, "args": self.args, "kwargs": self.kwargs, "options": self.options}
            instance: SubmitOptions = {"instance": "an instant"} if self.instance else {}
            requests.make(self.key, signature, {**self.submit_options, **instance, **more})

    def hash(self, schedule: Schedule) -> str:
        """Hash all fields of the entry, so that beats can compare entries. `schedule`: what `planned()` returned.

        Raises TypeError or ValueError if a field cannot be written as JSON.
        """
        parts = [self.task, self.args, self.kwargs, self.options, self.key, self.when_busy, self.submit]
        # Only if set, so that a field that is new in a version changes no hash of entries without it.
        if more := self._more():
            parts.append(more)
        return digest(json.dumps((self.name, str(schedule), *parts), sort_keys=True, default=_plain))

    def _more(self) -> dict[str, object]:
        """The rarely used fields that differ from their defaults. `zone`, `first` and `last` are not needed in the
        hash, since the schedule's text contains them.
        """
        return {name: getattr(self, name) for name in _RARE if getattr(self, name) != _DEFAULTS[name]}

    def about(self, schedule: Schedule) -> str:
        """The JSON by which any process can show the entry to people, even if only beats have the entry: the text of
        `schedule`, first and last instant, task and key; no arguments.
        """
        values = self._texts(schedule)
        about = {
            name: value for name, value in values.items() if name not in ("name", "args", "kwargs", "options", "submit")
        }
        if about["schedule"] is None:
            inner = schedule.schedule if isinstance(schedule, Bounded) else schedule
            about |= {"schedule": str(inner), "opaque": True}
        return json.dumps(about, default=_plain)

    def to_json(self) -> str:
        """Write the entry as the JSON that `from_json` reads. Raises TypeError or ValueError if a field has no JSON
        form.
        """
        own = schedule_of(self.schedule, zone_named(self.zone) if isinstance(self.zone, str) else self.zone)
        values = self._texts(own)
        if values["schedule"] is None:
            raise ValueError(f"{own} has no text by which Redis could keep it; give an expression")
        try:
            return json.dumps(values, default=_form)
        except (TypeError, ValueError) as error:
            raise ValueError(f"an argument or option has no JSON form: {error}") from error

    def _texts(self, schedule: Schedule) -> dict[str, object]:
        """The fields that differ from their defaults, with `schedule` and its zone, first and last instant as texts.
        The schedule is None if it has no text, being of a class of the app's own.
        """
        inner = schedule.schedule if isinstance(schedule, Bounded) else schedule
        zone = zone_name(zone_of(inner))
        values: dict[str, object] = {part.name: getattr(self, part.name) for part in fields(self)}
        values |= {"schedule": text_of(inner), "zone": None if zone == "UTC" else zone}
        values |= {name: _aware(at).isoformat() for name in ("first", "last") if (at := getattr(self, name))}
        return {name: value for name, value in values.items() if value != _DEFAULTS[name]}

    @classmethod
    def from_table(cls, name: str, row: object) -> Entry:
        """Make an entry of `row`, the value for `name` in Celery's `beat_schedule`. Raises TypeError for missing or
        unknown fields.
        """
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
_RARE = ("misfire", "catch_up", "jitter", "instance")


def schedule_from(about: Mapping[str, Json], other: str = "") -> Schedule | None:
    """Make the schedule of an entry from the JSON that `Entry.about` wrote; None for a schedule class of the app's own,
    which has no text. `other`: the text of a schedule to use instead; "": none.
    """
    if about.get("opaque") and not other:
        return None
    schedule = parse(other or str(about["schedule"]), zone_named(str(about.get("zone", "UTC"))))
    first, last = (datetime.fromisoformat(str(about[name])) if name in about else None for name in ("first", "last"))
    return Bounded(schedule, first, last) if first or last else schedule


def _aware(at: datetime) -> datetime:
    """Return the datetime with UTC as its zone, if it has none. Raises TypeError for anything but a datetime."""
    if not isinstance(at, datetime):
        raise TypeError(f"{at!r} is no instant: give a datetime")
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _form(value: object) -> object:
    """Return the JSON form of the one value of a submit's options that has no form of its own."""
    if isinstance(value, Use):
        return asdict(value)
    raise TypeError(f"{value!r} has no JSON form")


def _plain(value: object) -> object:
    return str(value) if isinstance(value, date | UUID | Decimal | timedelta) else _form(value)


def tick_id(name: str, at: datetime) -> OwnId:
    """The id of the job or task of a tick, `<entry>@<instant>`, the same in every beat. `submit` accepts an id of this
    form from beats only.
    """
    precision = "milliseconds" if at.microsecond else "seconds"
    return OwnId(f"{name}@{at.astimezone(UTC).isoformat(timespec=precision).replace('+00:00', 'Z')}")


def run_id(name: str, token: str) -> OwnId:
    """The id, `<entry>@run:<token>`, of the job or task of a run that an operator requested with `run_now`."""
    return OwnId(f"{name}@run:{token}")


def next_tick(store: Store, name: str) -> datetime | None:
    """The next instant of the entry `name`; None if no beat has such an entry, or no instant is to come."""
    return next_ticks(store, [name])[0]


def next_ticks(store: Store, names: Sequence[str]) -> list[datetime | None]:
    """The next instant of each of these entries, read in one round trip; None for one that no beat has, or that has no
    instant to come.
    """
    replies = store.read_many([("HGET", store.key("tick", name), "next") for name in names]) if names else ()
    return [instant(int(at)) if at and int(at) else None for at in replies]
