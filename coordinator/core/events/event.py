"""An event: something outside for which jobs wait. It is set once, with a value of JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple, Protocol, Unpack, cast

from kombu.utils.json import dumps, loads

from coordinator.core.author import Acting, act_of, author_of
from coordinator.core.jobs import validation
from coordinator.core.jobs.after import EVENT
from coordinator.core.jobs.encoding import bounded
from coordinator.core.settings import Settings
from coordinator.core.store.client import Store
from coordinator.core.store.steps import event_set
from coordinator.core.store.times import instant, milliseconds
from coordinator.core.store.values import Json
from coordinator.core.verbs import EVENT as EVENTS
from coordinator.core.verbs import Answer, AnyCoordinator, Given, Option, verb
from coordinator.errors import EventTaken, InvalidJob

_LONGEST = 512  # bytes of a name
_LEAST = 3600.0  # seconds for which a set event is kept at least: sweeps still tell those that wait for it
VALUE = Option("value", 'JSON, such as {"by": "ann"}, true or "yes". Empty: null.', "Its value", object, metavar="JSON")


class Kept(NamedTuple):
    """An event that is set: its value as JSON, when it was set, by whom and why."""

    value: str
    at: datetime
    by: str
    why: str


class Keeper(Protocol):
    """Where events are kept. `set` returns what event_set answers: set | known | other, and the value that is kept."""

    settings: Settings

    def set(self, name: str, value: str, acting: Acting) -> tuple[str, str]: ...

    def read(self, name: str) -> Kept | None: ...

    def waiting(self, name: str) -> int: ...


def check_event(name: object) -> str:
    """Return the name of an event: text of 1 to 512 bytes on one line. Raises InvalidJob."""
    if not validation.is_id(name):
        raise InvalidJob(f"an event's name is text of 1 to {_LONGEST} bytes on one line, not {validation.shown(name)}")
    return str(name)


def _event(coordinator: AnyCoordinator, given: Given) -> object:
    return coordinator.event(given.pop("name"))


def _told(coordinator: AnyCoordinator, given: Given, new: bool) -> Answer:
    name = given["name"]
    text = f"event {name} is set" if new else f"event {name} was set so before"
    return {**given, "set": new}, text


def _planned(coordinator: AnyCoordinator, given: Given) -> list[str]:
    """Say what a set would do."""
    event = coordinator.event(given["name"])
    if (at := event.at) is not None:
        return [f"event {event.name} is set since {at:%Y-%m-%d %H:%M:%S} UTC: it keeps its value"]
    count = event.waiting
    waiting = "1 job waits for it and goes on" if count == 1 else f"{count:,} jobs wait for it and go on"
    return [f"event {event.name} is set, once and for all", waiting if count else "nobody waits for it yet"]


@dataclass(frozen=True, slots=True)
class Event:
    """The event `name`, to be set, read, or waited for: `submit(key, signature, after=event)`. Each property asks Redis
    anew.
    """

    name: str
    _keeper: Callable[[], Keeper] = field(repr=False, compare=False)

    @property
    def cause(self) -> str:
        """The event as a cause of jobs."""
        return EVENT + self.name

    @verb(EVENTS, VALUE, tell=_told, name="event-set", command="event set", title="Set", plan=_planned, host=_event)
    def set(self, value: Json = None, **acting: Unpack[Acting]) -> bool:
        """Set an event, once; the jobs that wait for it go on. It is kept for as long as records of jobs are, so that a
        job may come later.

        `value`: JSON, which the jobs may get.
        False: it was set to this value before, so a repeated call changes nothing. Raises EventTaken if it has another
        value; InvalidJob.
        """
        keeper = self._keeper()
        text = bounded(f"event {self.name}: its value has", self._encoded(value), keeper.settings.max_payload)
        what, held = keeper.set(self.name, text, acting)
        if what == "other":
            raise EventTaken(self.name, held)
        return what == "set"

    def _encoded(self, value: object) -> str:
        try:
            return str(dumps(value, sort_keys=True))
        except (TypeError, ValueError) as error:
            raise InvalidJob(f"event {self.name}: its value is not JSON: {error}") from error

    @property
    def is_set(self) -> bool:
        return self._keeper().read(self.name) is not None

    @property
    def value(self) -> Json:
        """The value to which the event was set; None also where it is not set."""
        kept = self._keeper().read(self.name)
        return None if kept is None else cast(Json, loads(kept.value))

    @property
    def at(self) -> datetime | None:
        """When the event was set; None: it is not."""
        kept = self._keeper().read(self.name)
        return None if kept is None else kept.at

    @property
    def by(self) -> str | None:
        """Who set the event; None: it is not set."""
        kept = self._keeper().read(self.name)
        return None if kept is None else kept.by

    @property
    def why(self) -> str | None:
        """The reason that its author gave; None: it is not set."""
        kept = self._keeper().read(self.name)
        return None if kept is None else kept.why

    @property
    def waiting(self) -> int:
        """How many jobs wait for the event."""
        return self._keeper().waiting(self.name)


class InRedis:
    """Keeps events in Redis."""

    def __init__(self, store: Store) -> None:
        self._store, self.settings = store, store.settings

    def set(self, name: str, value: str, acting: Acting) -> tuple[str, str]:
        keep = milliseconds(max(self.settings.keep_success, self.settings.keep_failure, _LEAST))
        what, held, _ = event_set(self._store, name, value, keep, act_of(**acting))
        return what.decode(), held.decode()

    def read(self, name: str) -> Kept | None:
        return kept_in(self._store.read("HGETALL", self._store.key("event", name)))

    def waiting(self, name: str) -> int:
        number: int = self._store.read("ZCARD", self._store.key("dependants", EVENT + name))
        return number


def kept_in(fields: Mapping[bytes, bytes]) -> Kept | None:
    """Read the hash of an event; None: it is not set."""
    if b"value" not in fields:
        return None
    value, at, by, why = (fields.get(name, b"").decode() for name in (b"value", b"at", b"by", b"why"))
    return Kept(value, instant(int(at or 0)), by, why)


class InProcess:
    """Keeps events in the memory of this process, for jobs that run at their submit (`task_always_eager`)."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._kept: dict[str, Kept] = {}

    def set(self, name: str, value: str, acting: Acting) -> tuple[str, str]:
        if name in self._kept:
            held = self._kept[name].value
            return "known" if held == value else "other", held
        self._kept[name] = Kept(value, datetime.now(UTC), author_of(acting.get("by")).name, acting.get("why", ""))
        return "set", value

    def read(self, name: str) -> Kept | None:
        return self._kept.get(name)

    def waiting(self, name: str) -> int:
        return 0
