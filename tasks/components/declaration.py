"""The declaration of a component, and `Work`, the argument of the component's function."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from coordinator import Backoff, CurrentJob, SettingsError, Use
from coordinator.extending import schedule_of, validation
from tasks.batches import Failure, Item, ItemConditions
from tasks.batches.values import checked_name

HOUR, DAY = 3600.0, 86400.0
RESERVED = ("component", "SBOI", "run")
LEAST = {"simultaneous_processes": 1, "work_queue": 1, "max_results": 0, "max_losses": 0, "max_attempts": 1}
LONGEST_NAME = 100


class NotYet(Exception):
    """Raised by a component's function that cannot work on the item yet.

    No event is stored, and a later poll submits the item again.
    """


@dataclass(slots=True)
class Work:
    """The argument of a component's function. `item`: the item to work on. `job`: the job in which the function runs.

    `text`, `is_changed`: what the function has passed to `say`, and whether it has called `changed`.
    """

    item: Item
    job: CurrentJob
    text: str = ""
    is_changed: bool = False

    @property
    def directory(self) -> Path:
        """The directory with the item's files. Raises ValueError if the item has none."""
        if self.item.directory is None:
            raise ValueError(f"{self.item.id} has no directory")
        return Path(self.item.directory)

    @property
    def fence(self) -> int:
        """The job's fence. Pass it along with every write that must be refused once another job has the item."""
        return self.job.fence

    @property
    def attempt(self) -> int:
        """The number of the job's attempt, from 1."""
        return self.job.attempt

    def check(self) -> None:
        """Raise LeaseLost if the job has lost its lease, so that another job may have the item."""
        self.job.check()

    def progress(self, done: int, total: int) -> None:
        """Report that `done` of `total` units of the work are done, for operators. Cheap enough to call often."""
        self.job.progress(done, total)

    def changed(self) -> None:
        """Tell that the work has changed the item itself, so that storing the event increases the item's revision."""
        self.is_changed = True

    def say(self, text: str) -> None:
        """Set the text of the report that the event will have. A later call replaces the text of an earlier one."""
        if not isinstance(text, str):
            raise TypeError(f"the text of a report is a string, not {text!r:.80}")
        self.text = text


class ComponentOptions(TypedDict, total=False):
    """The options of `Components.declare`: the fields of Component that have a default."""

    past: Sequence[str]
    past_failed: Sequence[str]
    future: Sequence[str]
    old: Sequence[str]
    types: Sequence[str]
    simultaneous_processes: int
    work_queue: int
    max_results: int
    time_limit: float | None
    soft_time_limit: float | None
    max_losses: int
    max_attempts: int
    retry_delay: float | Sequence[float] | Backoff | None
    infrastructure: Sequence[type[BaseException]]
    every: float
    max_lifetime: float


Function = Callable[[Work], Iterable[Failure] | None]


@dataclass(frozen=True, slots=True)
class Component:
    """A declared component. docs/batches.md explains each field. Raises SettingsError for an invalid value."""

    name: str
    version: str
    event: str
    function: Function = field(repr=False)
    past: Sequence[str] = ()
    past_failed: Sequence[str] = ()
    future: Sequence[str] = ()
    old: Sequence[str] = ()
    types: Sequence[str] = ()
    simultaneous_processes: int = 1
    work_queue: int = 100
    max_results: int = 1000
    time_limit: float | None = 6 * HOUR
    soft_time_limit: float | None = None
    max_losses: int = 3
    max_attempts: int = 5
    retry_delay: float | Sequence[float] | Backoff | None = None
    infrastructure: Sequence[type[BaseException]] = ()
    every: float = 60.0
    max_lifetime: float = 10 * DAY

    def __post_init__(self) -> None:
        try:
            self._check_names()
            self._check_job()
        except (ValueError, TypeError) as error:
            raise SettingsError(f"component {self.name!r:.120}: {error}") from error

    def _check_names(self) -> None:
        _checked("name", self.name)
        if "/" in self.name or self.name in RESERVED or len(self.name.encode()) > LONGEST_NAME:
            raise ValueError(f"name: give at most {LONGEST_NAME} bytes without /, and none of {', '.join(RESERVED)}")
        _checked("version", self.version)
        _checked("event", self.event)
        for word in ("past", "past_failed", "future", "old", "types"):
            types = getattr(self, word)
            if isinstance(types, str):
                raise ValueError(f"{word} is a list of types: write {word}=[{types!r}]")
            if not isinstance(types, Collection):
                raise ValueError(f"{word} is a list of types, not {types!r:.80}")
            for type_ in types:
                _checked(word, type_)
        if not callable(self.function):
            raise ValueError(f"function {self.function!r} cannot be called: declare a function of one argument")

    def _check_job(self) -> None:
        """Check the options that go into the schedule entry and the jobs.

        An invalid entry would keep the beats from polling for any component. Raises ValueError or TypeError.
        """
        try:
            schedule_of(self.every)
        except (ValueError, TypeError) as error:
            raise ValueError(f"every: {error}") from error
        validation.limit("max_lifetime", self.max_lifetime)
        soft = 0.0 if self.soft_time_limit is None else validation.limit("soft_time_limit", self.soft_time_limit)
        if self.time_limit is not None and validation.limit("time_limit", self.time_limit) <= soft:
            raise ValueError(f"soft_time_limit {soft} s must be below time_limit {self.time_limit} s")
        for word, least in LEAST.items():
            validation.count(word, getattr(self, word), least)
        if self.retry_delay is not None:
            validation.delays(self.retry_delay)
        validation.names_of_errors("infrastructure", self.infrastructure)

    @property
    def wanted(self) -> ItemConditions:
        """The conditions of the items to work on. Their `future` has the component's own event, unless `old` has it."""
        future = [*self.future] if self.event in self.old else [*self.future, self.event]
        return ItemConditions(self.past, self.past_failed, tuple(future), self.old, self.types).unless_stopped()

    @property
    def most(self) -> int:
        """The greatest number of items of one priority that wait in the component's lane."""
        return max(self.work_queue, self.simultaneous_processes)

    @property
    def depends_on(self) -> frozenset[str]:
        """The types of events in the component's conditions `past`, `past_failed` and `old`, without its own type."""
        return frozenset({*self.past, *self.past_failed, *self.old} - {self.event})

    def lane_of(self, item: str) -> str:
        """Return the key of the lane of the component's jobs for an item."""
        return f"{self.name}/{item}"

    @property
    def uses(self) -> dict[str, Use]:
        """What a child uses: a unit of the component's quota, also while it is parked, or waits for another attempt."""
        return {self.name: Use(until="end")}

    @property
    def runs(self) -> str:
        """The quota of the component's runs, and the name of its schedule entry. A parked run uses none of it, so that
        many runs may be parked while one polls.
        """
        return f"component/{self.name}"

    @property
    def lock(self) -> str:
        """The name of the lock that a run holds while it polls."""
        return f"SBOI/{self.name}"


def _checked(word: str, name: str) -> None:
    if checked_name(word, name) != name.strip():
        raise ValueError(f"{word} {name!r} begins or ends with a blank")
