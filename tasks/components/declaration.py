"""A component as its author declares it, and the work that its function is given."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from coordinator import Backoff, CurrentJob
from coordinator.jobs.validation import count, delays, limit, names_of_errors
from coordinator.lanes.lanes import MAX_LIMIT
from coordinator.scheduler.schedules import schedule_of
from tasks.batches import Failure, Item, Wanted
from tasks.batches.values import checked_name

DAY = 86400.0
RESERVED = ("component", "SBOI", "run")
LONGEST_NAME = 100


class NotYet(Exception):
    """Raise it in a component's function: no event is stored, and the component asks again at its next poll."""


@dataclass(slots=True)
class Work:
    """One item that a component works on. `directory` raises ValueError for an item without one."""

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
        """It belongs into every write that must not come late."""
        return self.job.fence

    @property
    def attempt(self) -> int:
        return self.job.attempt

    def check(self) -> None:
        """Raises LeaseLost when another job was given the item."""
        self.job.check()

    def progress(self, done: int, total: int) -> None:
        """Say how far the work is. Cheap to call often."""
        self.job.progress(done, total)

    def changed(self) -> None:
        """Say that the work changed the item itself: its revision grows with the event."""
        self.is_changed = True

    def say(self, text: str) -> None:
        """The text of the report. A later call replaces it. Raises TypeError for what is no text."""
        if not isinstance(text, str):
            raise TypeError(f"a report says a text, and {text!r:.80} is none")
        self.text = text


class Words(TypedDict, total=False):
    """The words of a declaration that have a default: as in Component."""

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
    top_up: bool
    max_lifetime: float


Function = Callable[[Work], Iterable[Failure] | None]


@dataclass(frozen=True, slots=True)
class Component:
    """docs/batches.md says what each word means. Raises ValueError for a value that cannot be."""

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
    time_limit: float | None = None
    soft_time_limit: float | None = None
    max_losses: int = 3
    max_attempts: int = 5
    retry_delay: float | Sequence[float] | Backoff | None = None
    infrastructure: Sequence[type[BaseException]] = ()
    every: float = 60.0
    top_up: bool = False
    max_lifetime: float = 10 * DAY

    def __post_init__(self) -> None:
        checked_name("component", self.name)
        if "/" in self.name or self.name in RESERVED or len(self.name.encode()) > LONGEST_NAME:
            raise ValueError(f"component {self.name!r}: give at most {LONGEST_NAME} bytes without /")
        checked_name("version", self.version)
        checked_name("event", self.event)
        for word in ("past", "past_failed", "future", "old", "types"):
            given = getattr(self, word)
            if isinstance(given, str):
                raise ValueError(f"{self.name}: {word} is a list of types, not {given!r}")
            for one in given:
                checked_name(word, one)
        for word, least in (("simultaneous_processes", 1), ("work_queue", 1), ("max_results", 0)):
            given = getattr(self, word)
            if not isinstance(given, int) or given < least:
                raise ValueError(f"{self.name}: {word} is a whole number from {least}, not {given!r}")
        if self.simultaneous_processes > MAX_LIMIT:
            raise ValueError(
                f"{self.name}: simultaneous_processes is at most {MAX_LIMIT}, the greatest limit of a lane"
            )
        try:
            self._check_job()
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.name}: {error}") from error

    def _check_job(self) -> None:
        """Asked here: one entry that no beat can read would keep all components from their polls."""
        try:
            schedule_of(self.every)
        except (ValueError, TypeError) as error:
            raise ValueError(f"every: {error}") from error
        limit("max_lifetime", self.max_lifetime)
        soft = 0.0 if self.soft_time_limit is None else limit("soft_time_limit", self.soft_time_limit)
        if self.time_limit is not None and limit("time_limit", self.time_limit) <= soft:
            raise ValueError(f"soft_time_limit {soft} s must be below time_limit {self.time_limit} s")
        count("max_losses", self.max_losses)
        count("max_attempts", self.max_attempts, 1)
        if self.retry_delay is not None:
            delays(self.retry_delay)
        names_of_errors("infrastructure", self.infrastructure)

    @property
    def wanted(self) -> Wanted:
        """Its own event counts as `future` unless it stands in `old`; nobody works on an item that was stopped."""
        future = [*self.future] if self.event in self.old else [*self.future, self.event]
        return Wanted(self.past, self.past_failed, tuple(future), self.old, self.types).unless_stopped()

    @property
    def most(self) -> int:
        """So many items one run takes at most."""
        return max(self.work_queue, self.simultaneous_processes)

    @property
    def depends_on(self) -> frozenset[str]:
        """The types of events without which it has nothing to do."""
        return frozenset({*self.past, *self.past_failed, *self.old} - {self.event})

    @property
    def limits(self) -> dict[str, int]:
        """So many jobs may run at once in each of its lanes. With `top_up` a run polls while others are parked, each of
        which has a child in line; and so many children are there at most.
        """
        return {
            self.name: self.simultaneous_processes,
            self.run_lane: min(self.most + 1, MAX_LIMIT) if self.top_up else 1,
        }

    def lane_of(self, item: str) -> str:
        """The key of its work on an item."""
        return f"{self.name}/{item}"

    @property
    def run_lane(self) -> str:
        """The key of its runs, and the name of its schedule entry."""
        return f"component/{self.name}"

    @property
    def lock(self) -> str:
        """The lock under which a run looks for work."""
        return f"SBOI/{self.name}"
