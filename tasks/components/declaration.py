"""The declaration of a component, and the work that its function gets."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from coordinator import Backoff, CurrentJob, SettingsError
from coordinator.extending import MAX_LANE_LIMIT, schedule_of, validation
from tasks.batches import Failure, Item, ItemConditions
from tasks.batches.values import checked_name

HOUR, DAY = 3600.0, 86400.0
RESERVED = ("component", "SBOI", "run")
LEAST = {"simultaneous_processes": 1, "work_queue": 1, "max_results": 0, "max_losses": 0, "max_attempts": 1}
LONGEST_NAME = 100


class NotYet(Exception):
    """Raised by a component's function to store no event. The component gets the item again at a later poll."""


@dataclass(slots=True)
class Work:
    """The argument of a component's function: the item, and the job. `directory` raises ValueError if it has none."""

    item: Item
    job: CurrentJob
    text: str = ""
    is_changed: bool = False

    @property
    def directory(self) -> Path:
        if self.item.directory is None:
            raise ValueError(f"{self.item.id} has no directory")
        return Path(self.item.directory)

    @property
    def fence(self) -> int:
        """The job's fence. Pass it with every write that must not take effect after another job has the item."""
        return self.job.fence

    @property
    def attempt(self) -> int:
        return self.job.attempt

    def check(self) -> None:
        """Raises LeaseLost when another job has the item."""
        self.job.check()

    def progress(self, done: int, total: int) -> None:
        """Report how far the work is. Cheap to call often."""
        self.job.progress(done, total)

    def changed(self) -> None:
        """Note that the work changed the item itself: its revision grows with the event."""
        self.is_changed = True

    def say(self, text: str) -> None:
        """Set the text of the report. A later call replaces it. Raises TypeError for what is no text."""
        if not isinstance(text, str):
            raise TypeError(f"a report says a text, and {text!r:.80} is none")
        self.text = text


class ComponentOptions(TypedDict, total=False):
    """The fields of Component that have a default."""

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
    """A declared component; docs/batches.md explains each field. Raises SettingsError for an invalid value."""

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
        """Check what a beat or a job would refuse: one bad schedule entry would stop the polls of all components."""
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
        if self.simultaneous_processes > MAX_LANE_LIMIT:
            raise ValueError(f"simultaneous_processes is at most {MAX_LANE_LIMIT}, the greatest limit of a lane")
        if self.retry_delay is not None:
            validation.delays(self.retry_delay)
        validation.names_of_errors("infrastructure", self.infrastructure)

    @property
    def wanted(self) -> ItemConditions:
        """The items to work on. The component's own event counts as `future` unless `old` lists it."""
        future = [*self.future] if self.event in self.old else [*self.future, self.event]
        return ItemConditions(self.past, self.past_failed, tuple(future), self.old, self.types).unless_stopped()

    @property
    def most(self) -> int:
        """The highest number of waiting items of one priority."""
        return max(self.work_queue, self.simultaneous_processes)

    @property
    def depends_on(self) -> frozenset[str]:
        """The types of events that the component needs."""
        return frozenset({*self.past, *self.past_failed, *self.old} - {self.event})

    @property
    def limits(self) -> dict[str, int]:
        """The limits of the component's lanes. Many runs may be parked while one polls."""
        return {self.name: self.simultaneous_processes, self.run_lane: MAX_LANE_LIMIT}

    def lane_of(self, item: str) -> str:
        """The key of the component's work on an item."""
        return f"{self.name}/{item}"

    @property
    def run_lane(self) -> str:
        """The key of the component's runs, and the name of its schedule entry."""
        return f"component/{self.name}"

    @property
    def lock(self) -> str:
        """The lock under which a run looks for work."""
        return f"SBOI/{self.name}"


def _checked(word: str, name: str) -> None:
    if checked_name(word, name) != name.strip():
        raise ValueError(f"{word} {name!r} begins or ends with a blank")
