"""Acts on all jobs that a filter finds, or on all lanes of a key's prefix: counted first, then in portions.

Run again, an act does the rest. Each portion is found and acted on at once, so that little can come between. The trail
has one line as the act begins, which its first change writes, and one once it has ended; each job's record, or lane,
has the act, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, Literal, TypedDict, TypeVar, cast, get_args

from coordinator.author import Acting
from coordinator.errors import InvalidJob
from coordinator.jobs import validation
from coordinator.jobs.hidden import Hidden
from coordinator.jobs.instances import is_grab
from coordinator.jobs.record import TERMINAL
from coordinator.jobs.search import STATES, JobFilter, find, looked, pages
from coordinator.jobs.states import End
from coordinator.jobs.trail import OnMany
from coordinator.lanes.client import check_limit
from coordinator.lanes.plan import MOST_SHOWN, Plan, Projection, of_cancel, of_lanes, of_move, of_releases, of_retry
from coordinator.lanes.view import Lane, lanes_at
from coordinator.store.client import Store
from coordinator.store.wire import Arg

OnJobs = Literal["cancel", "retry", "move"]
OnLanes = Literal["release", "pause", "resume", "limit"]
Verb = Literal[OnJobs, OnLanes]
T = TypeVar("T")
LANE_VERBS = get_args(OnLanes)
VERBS = (*get_args(OnJobs), *LANE_VERBS)
PORTION = 100
MOST_COUNTED = 10_000  # by a plan
COUNTS = 0.5  # seconds of a plan until it counts no further
ON_STATES = {
    "cancel": tuple(state for state in STATES if state not in TERMINAL),
    "retry": ("held", "retrying", *(state for state in STATES if state in TERMINAL and state != "succeeded")),
    "move": ("waiting", "scheduled"),
}


class How(TypedDict, total=False):
    """`to`, the `back` or the `front` of a priority: of `retry` and `move`. `priority`: of `move`. `limit`: of `limit`,
    how many jobs of a lane may run at once.
    """

    to: End
    priority: int | None
    limit: int


class ActingOn(JobFilter, How, Acting, total=False):
    """A filter, how it is to be done, and what each act takes."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an act on a filter is. `done`: what it has changed itself. `total`: what was found at its beginning."""

    done: int
    total: int


class Bulk(Generic[T]):
    """One act on a filter. Raises InvalidJob for a filter that names nothing, or only what it cannot act on."""

    kind: ClassVar[str]

    def __init__(self, store: Store, verb: Verb, how: How, named: dict[str, object], hidden: Hidden | None) -> None:
        self._store, self._verb, self._named, self._hidden = store, verb, named, hidden
        self._to: End = validation.check_end(how.get("to", "back"))
        for name, its in (("priority", "move"), ("limit", "limit")):
            if how.get(name) is not None and verb != its:
                raise InvalidJob(f"{verb} takes no {name}: it is for {its}")
        if not named:
            raise InvalidJob(f"{verb} on a filter: name at least one, such as {'state or ' * (verb in ON_STATES)}key")

    def looked(self, most: int) -> Iterator[list[T]]:
        """Yield what the act can change of each portion, of some `most`, at which the walk looks."""
        raise NotImplementedError

    def portions(self, most: int) -> Iterator[list[T]]:
        """Yield what the act can change, as it is to be acted on."""
        return filter(None, self.looked(most))

    def planned(self, look: Projection, things: list[T]) -> Plan:
        raise NotImplementedError

    def call(self, thing: T, act: str) -> Sequence[Arg]:
        """The arguments of the step that acts on one thing."""
        raise NotImplementedError

    def count(self) -> int:
        return sum(len(portion) for portion in self.looked(MOST_SHOWN))

    def plan(self) -> Plan:
        """What the act would do. `hits` has the first 1,000; it counts for half a second, or to some 10,000."""
        things, count, complete, ends = list[T](), 0, True, time.monotonic() + COUNTS
        for portion in self.looked(MOST_SHOWN):
            things += portion[: MOST_SHOWN - len(things)]
            count += len(portion)
            if count >= MOST_COUNTED or time.monotonic() > ends:
                complete = False
                break
        found = self.planned(Projection(self._store), things)
        return replace(found, count=count - len(things) + len(found.hits), complete=complete)

    def run(self, acting: Acting) -> Iterator[Progress]:
        """Act, and yield the progress: at the beginning, and after each portion."""
        done, total = 0, self.count()
        text = " ".join(f"{name}={_text(value)}" for name, value in self._named.items())
        act = OnMany(self._store, self._verb, self.kind, text, f"{total} found", **acting)
        yield Progress(done, total)
        for portion in self.portions(PORTION):
            step = f"{self.kind.removesuffix('s')}_{self._verb}"
            for reply in self._store.step_many(step, [self.call(thing, act.text) for thing in portion]):
                self._store.checked(reply)
            done = act.changed()
            total = max(total, done)
            yield Progress(done, total)
        act.ended()


class _Jobs(Bulk[str]):
    """Its things are ids."""

    kind = "jobs"

    def __init__(self, store: Store, verb: Verb, how: How, named: dict[str, object], hidden: Hidden | None) -> None:
        super().__init__(store, verb, how, named, hidden)
        states = named.get("state") or ON_STATES[verb]
        chosen = (states,) if isinstance(states, str) else cast("tuple[str, ...]", tuple(cast("list[str]", states)))
        if not set(chosen) & set(ON_STATES[verb]):
            raise InvalidJob(f"{verb} acts on jobs that are {', '.join(ON_STATES[verb])}; not on {', '.join(chosen)}")
        unknown = [state for state in chosen if state not in STATES]
        self._wanted = cast(JobFilter, {**named, "state": unknown or [one for one in chosen if one in ON_STATES[verb]]})
        priority = how.get("priority")
        self._priority = None if priority is None else validation.priority(priority)

    def looked(self, most: int) -> Iterator[list[str]]:
        return looked(self._store, self._hidden, **self._wanted)

    def portions(self, most: int) -> Iterator[list[str]]:
        """A moved job would be met again, so all are found first. Others are found anew just before each portion."""
        if self._verb == "move":
            ids = self._ordered(list(dict.fromkeys(job_id for portion in self.looked(most) for job_id in portion)))
            yield from (ids[at : at + most] for at in range(0, len(ids), most))
            return
        after = None
        while after != "":
            ids, _, _, after = find(self._store, most, after or "", self._hidden, **self._wanted)
            if ids:
                yield ids

    def _ordered(self, ids: list[str]) -> list[str]:
        """The last one to go to the front is the first there."""
        return ids[::-1] if self._verb == "move" and self._to == "front" else ids

    def planned(self, look: Projection, things: list[str]) -> Plan:
        jobs = look.existing(self._ordered(things))
        if self._verb == "move":
            return of_move(look, jobs, self._priority, self._to)
        return of_cancel(look, jobs) if self._verb == "cancel" else of_retry(look, jobs, self._to)

    def call(self, thing: str, act: str) -> Sequence[Arg]:
        if self._verb == "move":
            return thing, "" if self._priority is None else self._priority, self._to, act, ""
        return (thing, act) if self._verb == "cancel" else (thing, act, self._to)


class _Lanes(Bulk[Lane]):
    """Its things are lanes, as they were read: a lane is taken from the holder that it had then."""

    kind = "lanes"

    def __init__(self, store: Store, verb: Verb, how: How, named: dict[str, object], hidden: Hidden | None) -> None:
        super().__init__(store, verb, how, named, hidden)
        if more := named.keys() - {"key"}:
            raise InvalidJob(f"{verb} acts on lanes: name them by key alone, not by {', '.join(sorted(more))}")
        key = named["key"]
        self._prefix = isinstance(key, str) and key.endswith("*")
        self._key = validation.stored_lane(str(key)[:-1]) if self._prefix else validation.check_key(key)
        if verb == "limit" and how.get("limit") is None:
            raise InvalidJob("limit on a filter: say how many jobs of a lane may run at once, such as limit=2")
        self._limit = check_limit(how.get("limit", 1))

    def looked(self, most: int) -> Iterator[list[Lane]]:
        """Of many, those of grabs are left alone: `release_grab` acts on them."""
        for keys in pages(self._store, self._key, "", most) if self._prefix else [[self._key]]:
            own = [key for key in keys if not (self._prefix and is_grab(key))]
            yield [lane for lane in lanes_at(self._store, own, 1) if self._changes(lane)]

    def _changes(self, lane: Lane) -> bool:
        if self._verb == "limit":
            return lane.limit != self._limit
        return lane.holder is not None if self._verb == "release" else lane.paused == (self._verb == "resume")

    def planned(self, look: Projection, things: list[Lane]) -> Plan:
        if self._verb == "release":
            return of_releases(look, [lane.holder for lane in things if lane.holder])
        return of_lanes(look, self._verb, things, self._limit)

    def call(self, thing: Lane, act: str) -> Sequence[Arg]:
        if self._verb == "limit":
            return thing.key, self._limit, act
        return (thing.key, act, thing.holder or "") if self._verb == "release" else (thing.key, act)


def on_filter(
    store: Store, verb: Verb, wanted: ActingOn, hidden: Hidden | None = None
) -> tuple[Bulk[str] | Bulk[Lane], Acting]:  # fmt: skip
    """The act of these arguments, and who does it why."""
    kind = _Lanes if validation.one_of("verb", verb, VERBS) in LANE_VERBS else _Jobs
    parts: list[dict[str, object]] = [{}, {}]
    given = {name: value for name, value in wanted.items() if value not in (None, "", (), [])}
    for part, names in zip(parts, (How.__annotations__, Acting.__annotations__), strict=True):
        part |= {name: given.pop(name) for name in names if name in given}
    return kind(store, verb, cast(How, parts[0]), given, hidden), cast(Acting, parts[1])


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
