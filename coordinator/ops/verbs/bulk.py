"""Acts on all jobs that a filter finds, or on all lanes whose keys have a prefix: counts them, then acts in portions.

If an act was stopped, the same act done again does the rest. Each portion is read just before it is acted on, so that
few jobs change in between. The audit trail gets one line at the first change, and one when the act has ended; the
record of each changed job, or the lane, names the act, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, Literal, TypedDict, TypeVar, cast, get_args

from coordinator.core.author import Acting
from coordinator.core.jobs import validation
from coordinator.core.jobs.hidden import Hidden
from coordinator.core.jobs.instances import is_grab
from coordinator.core.jobs.record import TERMINAL
from coordinator.core.jobs.states import End
from coordinator.core.lanes.view import Lane, lanes_at
from coordinator.core.store.client import Store
from coordinator.core.store.step import Call, many
from coordinator.core.store.steps import (
    job_cancel,
    job_move,
    job_retry,
    lane_pause,
    lane_release,
    lane_resume,
)
from coordinator.errors import CoordinatorError, InvalidJob
from coordinator.ops.search.filter import STATES, JobFilter, states_in
from coordinator.ops.search.jobs import find, pages, scanned
from coordinator.ops.verbs.plan import (
    MOST_SHOWN,
    Plan,
    Projection,
    of_cancel,
    of_lanes,
    of_move,
    of_releases,
    of_retry,
)
from coordinator.ops.verbs.trail import OnMany

OnJobs = Literal["cancel", "retry", "move"]
OnLanes = Literal["release", "pause", "resume"]
BulkVerb = Literal[OnJobs, OnLanes]
T = TypeVar("T")
LANE_VERBS = get_args(OnLanes)
VERBS = (*get_args(OnJobs), *LANE_VERBS)
PORTION = 100
_NAMED = 20  # values of a filter that the trail names
MOST_COUNTED = 10_000  # things that a plan counts; then it stops
COUNTS = 0.5  # seconds after which a plan stops counting
ON_STATES = {
    "cancel": tuple(state for state in STATES if state not in TERMINAL),
    "retry": ("held", "retrying", *(state for state in STATES if state in TERMINAL and state != "succeeded")),
    "move": ("waiting", "scheduled", "blocked"),
}


class How(TypedDict, total=False):
    """`to`, the `back` or the `front` of a priority: of `retry` and `move`. `priority`: of `move`."""

    to: End
    priority: int | None


class ActingOn(JobFilter, How, Acting, total=False):
    """The arguments of an act on a filter: the filter, the options of the act, and its author and reason."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of an act on a filter. `done`: how many things this act has changed. `total`: how many the filter
    found at the beginning, or `done` if that is more.
    """

    done: int
    total: int


class Bulk(Generic[T]):
    """An act on all that a filter finds: ids of jobs, or lanes. `named`: the filter; `how`: the options of the act;
    `hidden`: values that the search must not find, None = it may find all.

    Raises InvalidJob where the filter is empty, or names only states in which the verb does nothing.
    """

    kind: ClassVar[str]

    def __init__(self, store: Store, verb: BulkVerb, how: How, named: dict[str, object], hidden: Hidden | None) -> None:
        self._store, self._verb, self._named, self._hidden = store, verb, named, hidden
        self._to: End = validation.check_end(how.get("to", "back"))
        if how.get("priority") is not None and verb != "move":
            raise InvalidJob(f"{verb} takes no priority: it is for move")
        if not named:
            raise InvalidJob(f"{verb} on a filter: name at least one, such as {'state or ' * (verb in ON_STATES)}key")

    def scanned(self, most: int) -> Iterator[list[T]]:
        """Yield the things that the act can change, one list for each portion of the scan; lists may be empty.

        `most`: how many lanes one portion reads; a scan of jobs has a portion size of its own.
        """
        raise NotImplementedError

    def portions(self, most: int) -> Iterator[list[T]]:
        """Yield lists of the things to act on, each read just before the act changes it. No list is empty."""
        return filter(None, self.scanned(most))

    def planned(self, projection: Projection, things: list[T]) -> Plan:
        raise NotImplementedError

    def call(self, thing: T, act: str) -> Call[object]:
        """Return the call of the Redis function that acts on one thing. `act`: author and reason, as JSON."""
        raise NotImplementedError

    def count(self) -> int:
        return sum(len(portion) for portion in self.scanned(MOST_SHOWN))

    def plan(self) -> Plan:
        """Return what the act would do, and change nothing.

        `Plan.hits` has the first 1,000 things. Counting stops after half a second, or at about 10,000 things.
        """
        things, count, complete, ends = list[T](), 0, True, time.monotonic() + COUNTS
        for portion in self.scanned(MOST_SHOWN):
            things += portion[: MOST_SHOWN - len(things)]
            count += len(portion)
            if count >= MOST_COUNTED or time.monotonic() > ends:
                complete = False
                break
        found = self.planned(Projection(self._store), things)
        return replace(found, count=count - len(things) + len(found.hits), complete=complete)

    def run(self, acting: Acting) -> Iterator[Progress]:
        """Act, and yield the progress: once before the first portion, and after each portion."""
        done, total = 0, self.count()
        text = " ".join(f"{name}={_text(value)}" for name, value in self._named.items())
        act = OnMany(self._store, self._verb, self.kind, text, f"{total} found", **acting)
        try:
            yield Progress(done, total)
            for portion in self.portions(PORTION):
                for reply in many(self._store, [self.call(thing, act.text) for thing in portion]):
                    self._store.checked(reply)
                done = act.changed()
                total = max(total, done)
                yield Progress(done, total)
        except BaseException:  # also GeneratorExit: the caller has stopped
            with suppress(CoordinatorError):
                act.ended("stopped", total)
            raise
        act.ended("ended", total)


class _Jobs(Bulk[str]):
    """An act on the jobs that a filter finds, which are given by their ids."""

    kind = "jobs"

    def __init__(self, store: Store, verb: BulkVerb, how: How, named: dict[str, object], hidden: Hidden | None) -> None:
        super().__init__(store, verb, how, named, hidden)
        states = named.get("state") or ON_STATES[verb]
        chosen = states_in({"state": states})
        if not set(chosen) & set(ON_STATES[verb]):
            raise InvalidJob(f"{verb} acts on jobs that are {', '.join(ON_STATES[verb])}; not on {', '.join(chosen)}")
        unknown = [state for state in chosen if state not in STATES]
        self._wanted = cast(JobFilter, {**named, "state": unknown or [one for one in chosen if one in ON_STATES[verb]]})
        priority = how.get("priority")
        self._priority = None if priority is None else validation.priority(priority)

    def scanned(self, most: int) -> Iterator[list[str]]:
        return scanned(self._store, self._hidden, **self._wanted)

    def portions(self, most: int) -> Iterator[list[str]]:
        """Yield lists of at most `most` ids. For `move`, all jobs are found first, because the scan would find a moved
        job again; for other verbs, each list is searched for just before it is acted on.
        """
        if self._verb == "move":
            ids = self._ordered(list(dict.fromkeys(job_id for portion in self.scanned(most) for job_id in portion)))
            yield from (ids[at : at + most] for at in range(0, len(ids), most))
            return
        after = None
        while after != "":
            ids, _, _, after = find(self._store, most, after or "", self._hidden, **self._wanted)
            if ids:
                yield ids

    def _ordered(self, ids: list[str]) -> list[str]:
        """Reverse the ids if jobs move to the front: each moved job passes the one before it, so their order stays."""
        return ids[::-1] if self._verb == "move" and self._to == "front" else ids

    def planned(self, projection: Projection, things: list[str]) -> Plan:
        jobs = projection.existing(self._ordered(things))
        if self._verb == "move":
            return of_move(projection, jobs, self._priority, self._to)
        return of_cancel(projection, jobs) if self._verb == "cancel" else of_retry(projection, jobs, self._to)

    def call(self, thing: str, act: str) -> Call[object]:
        if self._verb == "move":
            return job_move.of(thing, self._priority, self._to, act, "")
        return job_cancel.of(thing, act) if self._verb == "cancel" else job_retry.of(thing, act, self._to)


class _Lanes(Bulk[Lane]):
    """An act on lanes, as they were read: `release` takes a lane only from the holder that was read."""

    kind = "lanes"

    def __init__(self, store: Store, verb: BulkVerb, how: How, named: dict[str, object], hidden: Hidden | None) -> None:
        super().__init__(store, verb, how, named, hidden)
        self._till = validation.until(named.get("until")) if verb == "pause" else ""
        if more := named.keys() - ({"key", "until"} if verb == "pause" else {"key"}):
            raise InvalidJob(f"{verb} acts on lanes: name them by key alone, not by {', '.join(sorted(more))}")
        key = named["key"]
        self._prefix = isinstance(key, str) and key.endswith("*")
        self._key = validation.stored_lane(str(key)[:-1]) if self._prefix else validation.check_key(key)

    def scanned(self, most: int) -> Iterator[list[Lane]]:
        """Yield the lanes that the act changes. A prefix leaves out the lanes of grabs, for which there is
        `release_grab`.
        """
        for keys in pages(self._store, self._key, "", most) if self._prefix else [[self._key]]:
            own = [key for key in keys if not (self._prefix and is_grab(key))]
            yield [lane for lane in lanes_at(self._store, own, 1) if self._changes(lane)]

    def _changes(self, lane: Lane) -> bool:
        return lane.holder is not None if self._verb == "release" else lane.paused == (self._verb == "resume")

    def planned(self, projection: Projection, things: list[Lane]) -> Plan:
        if self._verb == "release":
            return of_releases(projection, [lane.holder for lane in things if lane.holder])
        return of_lanes(projection, self._verb, things)

    def call(self, thing: Lane, act: str) -> Call[object]:
        if self._verb == "release":
            return lane_release.of(thing.key, act, thing.holder or "")
        return lane_pause.of(thing.key, self._till, act) if self._verb == "pause" else lane_resume.of(thing.key, act)


def on_filter(
    store: Store, verb: BulkVerb, wanted: ActingOn, hidden: Hidden | None = None
) -> tuple[Bulk[str] | Bulk[Lane], Acting]:  # fmt: skip
    """Make the act of `verb` on what the filter in `wanted` finds. Returns the act; and its author, reason and ticket,
    which `wanted` has, too.
    """
    kind = _Lanes if validation.one_of("verb", verb, VERBS) in LANE_VERBS else _Jobs
    parts: list[dict[str, object]] = [{}, {}]
    given = {name: value for name, value in wanted.items() if value not in (None, "", (), [])}
    for part, names in zip(parts, (How.__annotations__, Acting.__annotations__), strict=True):
        part |= {name: given.pop(name) for name in names if name in given}
    return kind(store, verb, cast(How, parts[0]), given, hidden), cast(Acting, parts[1])


def _text(value: object) -> str:
    if not isinstance(value, list | tuple):
        return str(value)
    return ",".join(map(str, value[:_NAMED])) + f" and {len(value) - _NAMED} more" * (len(value) > _NAMED)
