"""Plans an act by reading alone: which jobs or lanes would change, the new state of each, and which jobs would start.

A plan follows the rules of the Redis functions (`rules/cancel.lua`, `rules/admit.lua`, `rules/quotas.lua`,
`steps/job.lua`), and is right as long as nothing changes between plan and act. tests/proof/test_plans.py compares plans
with acts over random states.

The Redis functions cannot plan themselves: which jobs start depends on all changes together, so one function would have
to make all changes and undo them, and block Redis meanwhile. A plan would also need the right to write, and a Redis
that accepts writes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from coordinator.core.jobs.record import TERMINAL, fields_of_many
from coordinator.core.jobs.states import End
from coordinator.core.lanes.view import Lane, lanes_at
from coordinator.core.quotas.client import Quota, QuotaClient, named
from coordinator.core.store.client import Store
from coordinator.core.store.times import instant
from coordinator.errors import UnknownJob
from coordinator.ops.search.jobs import scored
from coordinator.ops.verbs.downstream import downstream, held_by
from coordinator.ops.verbs.flow import Flow, bounded, default_of
from coordinator.ops.verbs.job_seen import FIELDS, JobSeen
from coordinator.ops.verbs.retarget import AT_WORK, ClassOf, named_by

_HALF = 2**43  # half the range of scores that one priority has in a line (rules/line.lua)
_SILENT = 3000  # ms after which a waiter for a lock counts as dead (rules/locks.lua)
MOST_SHOWN = 1000  # hits that a plan lists
_APART = ("scheduled", "collected", "collecting", "blocked")
STOPPING = "stopping"  # as Hit.becomes: the job's process is stopped; then the job is cancelled, or rolled back


@dataclass(frozen=True, slots=True)
class Hit:
    """A thing (`job 7f3`, `lane K`) that an act would change: its state now, and the state that it would get."""

    thing: str
    state: str
    becomes: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What an act would do, as read at `as_of`.

    `hits`: the first 1,000 things that would change; `count`: how many would change in all. `complete`: False where
    counting stopped early, so that there may be more. `starts`: the jobs that would become ready, or get their lock,
    once the hits have left their lanes: at once, or when the process of a hit has stopped. `at_work`: how many jobs a
    retarget would leave as they are, since they run or are parked. `dependants`: what becomes of the jobs that are to
    run after the hits, and of how many: `failed`, `held` or `goes on`; of a retry `wait again`, and then go on once it
    has succeeded. `all_dependants`: False where there may be more of them.
    """

    act: str
    hits: tuple[Hit, ...]
    starts: tuple[str, ...]
    count: int
    as_of: datetime
    at_work: int = 0
    complete: bool = True
    dependants: Mapping[str, int] = field(default_factory=dict)
    all_dependants: bool = True


class Projection:
    """The lines and job records that one plan reads, each once, with the planned changes applied to them.

    `gone`: the jobs that leave their lines. `open_lanes`: by key, whether the act opens a lane or closes it.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.gone: dict[str, tuple[str, ...]] = {}
        self._jobs: dict[str, JobSeen] = {}
        self.open_lanes: dict[str, bool] = {}
        self._joined: list[JobSeen] = []
        self._called_back: set[str] = set()
        self._placed: dict[str, dict[str, float]] = {}  # by key: the scores of jobs that come to other places
        self._lines: dict[str, tuple[bool, dict[str, float]]] = {}
        self._scores: dict[str, float] = {}  # of jobs that join anew, and of jobs without a key at other places
        self._clock = store.clock()
        self.flow = Flow(store, lambda job_id: self.jobs([job_id])[0], self._score)

    def jobs(self, ids: Iterable[str]) -> list[JobSeen]:
        wanted = list(dict.fromkeys(ids))
        unread = [job_id for job_id in wanted if job_id not in self._jobs]
        for job_id, values in zip(unread, fields_of_many(self.store, unread, *FIELDS), strict=True):
            self._jobs[job_id] = JobSeen(job_id, values)
        return [self._jobs[job_id] for job_id in wanted]

    def job(self, job_id: str) -> JobSeen:
        """Read the job with this id, or, for an alias, the job into which it coalesced. Raises UnknownJob."""
        [job] = self.jobs([job_id])
        if job.alias:
            [job] = self.jobs([job.alias])
        if not job.state:
            raise UnknownJob(job_id)
        return job

    def existing(self, ids: Iterable[str]) -> list[JobSeen]:
        """Read the jobs with these ids, without those that have no record."""
        return [job for job in self.jobs(ids) if job.state]

    def line(self, key: str) -> tuple[bool, list[JobSeen]]:
        """Whether jobs of the lane may start, False where it is paused; and its first jobs, as they will stand."""
        placed = self._placed.get(key, {})
        self.read_lines([key])
        is_open, line = self._lines[key]
        jobs = self.jobs(job_id for job_id in line | placed if job_id not in self.gone)
        scores = line | placed
        jobs.sort(key=lambda job: (scores[job.id] if job.state == "waiting" else -math.inf, job.id))
        return self.open_lanes.get(key, is_open), jobs

    def read_lines(self, keys: Iterable[str]) -> None:
        """Read the lines of these lanes that were not read yet, in a few round trips; of each, only as many jobs from
        its front as the planned changes can concern.
        """
        if not (unread := [key for key in keys if key not in self._lines]):
            return
        leaving = Counter(key for keys in self.gone.values() for key in keys)
        leaving.update({key: len(placed) for key, placed in self._placed.items()})
        lanes = lanes_at(self.store, unread, 1)
        bounds = [leaving[one.key] + 5 for one in lanes]
        asked = [
            ("ZRANGE", self.store.key("line", lane.key), 0, bound, "WITHSCORES")
            for lane, bound in zip(lanes, bounds, strict=True)
        ]
        for lane, members in zip(lanes, self.store.read_many(asked), strict=True):
            line = {one.decode(): at for one, at in scored(members) if not one.startswith(b"\1")}
            self._lines[lane.key] = not lane.paused, line
        self.jobs(job_id for key in unread for job_id in self._lines[key][1])

    def place(self, job: JobSeen, score: float) -> None:
        """Make a job wait, with a new score in all its lines."""
        self.flow.leave(job, ended=False)
        job.fields["state"] = "waiting"
        for key in job.keys:
            self._placed.setdefault(key, {})[job.id] = score
        if not job.keys:
            self._scores[job.id] = score

    def let_go_on(self, job: JobSeen) -> str:
        """Let a job into its lines that waits for its causes no longer, at the place of its submit; or have it wait for
        its own time. Returns its state, `waiting` or `scheduled`.
        """
        own, at = job.not_before.startswith("+"), job.not_before.removeprefix("+")
        if at and int(at) > (self._clock.now if own else self._clock.wall):
            return "scheduled"
        job.fields |= {"taken": "", "lack": ""}
        self.place(job, float(job.score or 0))
        return "waiting"

    def call_back(self, key: str) -> None:
        """Make the ready jobs of a lane that no runner has claimed wait again, at their old places (steps/lane.lua)."""
        for job in self.line(key)[1]:
            self._wait_behind([job])
            if job.state == "ready" and not job.taken:
                self._called_back.add(job.id)
                self.place(job, float(job.score or self._lines[key][1][job.id]))

    def may_start(self, job: JobSeen) -> bool:
        """True if it is the first in each of its lanes (rules/admit.lua)."""
        return all(is_open and line[:1] == [job] for is_open, line in map(self.line, job.keys))

    def starts(self) -> list[str]:
        """Return the ids of the jobs that wait now and would start."""
        found: dict[str, None] = {}
        touched = (tuple(self.open_lanes), *self.gone.values(), tuple(self._placed))
        every = dict.fromkeys(key for keys in touched for key in keys)
        self.read_lines(every)
        for key in every:
            self._wait_behind(self.line(key)[1][1:])
        for key in every:
            while silent := [job for job in self._starting(key) if self._is_silent(job)]:
                self.gone[silent[0].id] = silent[0].keys
            found |= dict.fromkeys(job.id for job in self._starting(key))
        loose = [job.id for job in self.jobs(self._scores) if job.state == "waiting" and not job.keys]
        starting = [job for job in self.jobs([*found, *loose]) if not self.flow.hold_back(job)]
        found = dict.fromkeys([*(job.id for job in starting), *self.going_on()])
        return [job_id for job_id in found if job_id not in self._called_back]

    def going_on(self) -> list[str]:
        """Return the jobs that start in the queues of quotas of which units come back."""
        return self.flow.go_on(self._stays_queued)

    def _wait_behind(self, jobs: Iterable[JobSeen]) -> None:
        """Take jobs out of the queues of quotas that do not have their turn in all lanes any more."""
        for job in jobs:
            if job.lack and job.state == "waiting":
                self.flow.leave(job, ended=False)

    def _stays_queued(self, job: JobSeen) -> bool:
        """True if a job that stands in the queue of a quota is still in front of its lanes, and asks for its lock."""
        return self.may_start(job) and not self._is_silent(job)

    def _score(self, job: JobSeen) -> float:
        """Return the score of a job in its line."""
        if job.id in self._scores or not job.keys:
            return self._scores.get(job.id, float(job.score or 0))
        self.read_lines(job.keys[:1])
        placed = self._placed.get(job.keys[0], {}).get(job.id)
        score = self._lines[job.keys[0]][1].get(job.id, -math.inf) if placed is None else placed
        return float(job.score or 0) if score == -math.inf else score

    def _starting(self, key: str) -> list[JobSeen]:
        is_open, line = self.line(key)
        return [job for job in line[:is_open] if job.state == "waiting" and not job.lack and self.may_start(job)]

    def _is_silent(self, job: JobSeen) -> bool:
        """True if the job is a wait for a lock whose process no longer asks: it leaves the line instead of starting."""
        return bool(not job.fields["class"] and job.seen and self._clock.uptime - int(job.seen) > _SILENT)

    def joins(self, job: JobSeen, to: End) -> str:
        """Return the state, `ready` or `waiting`, that a job gets when the act puts it into its lines again.

        The jobs that the act has put into these lines before count as well.
        """
        state = "ready"
        for key in job.keys:
            is_open, line = self.line(key)
            own = int(job.priority or 0)
            line += [one for one in self._joined if key in one.keys]
            ahead = [one for one in line if one.state != "waiting" or _is_ahead(int(one.priority or 0), own, to)]
            self._wait_behind(() if ahead else line)
            if ahead or not is_open:
                state = "waiting"
        if state == "ready":
            place = _HALF + len(self._joined)
            self._scores[job.id] = (-place if to == "front" else place) - 2 * _HALF * int(job.priority or 0)
            job.fields |= {"taken": "", "lack": ""}
            state = "waiting" if self.flow.hold_back(job) else state
        job.fields["state"] = state
        self._joined.append(job)
        return state

    def plan(self, act: str, hits: Sequence[Hit], starts: Sequence[str], count: int | None = None) -> Plan:
        number = len(hits) if count is None else count
        return Plan(act, tuple(hits), tuple(starts), number, instant(self._clock.wall))


def _is_ahead(other: int, own: int, to: End) -> bool:
    return other > own or (other == own and to == "back")


def of_cancel(projection: Projection, jobs: Iterable[JobSeen]) -> Plan:
    """Plan `Coordinator.cancel` of each of these jobs."""
    hits: list[Hit] = []
    for job in jobs:
        becomes, leaves = _cancelled(job)
        if not becomes:
            continue
        hits.append(Hit(f"job {job.id}", _state(job), becomes))
        projection.flow.leave(job, leaves)
        if leaves and job.state not in _APART:
            projection.gone[job.id] = job.keys
    return _with_dependants(projection, "cancel", hits)


def _with_dependants(projection: Projection, act: str, hits: Sequence[Hit]) -> Plan:
    """Plan an act that ends these jobs, and with that some that are to run after them."""
    found = downstream(projection.store, [hit.thing.removeprefix("job ") for hit in hits])
    for job in projection.jobs(found.freed[:MOST_SHOWN]):
        projection.let_go_on(job)
    plan = projection.plan(act, hits, projection.starts())
    return replace(plan, dependants=dict(found.counts), all_dependants=found.complete)


def _state(job: JobSeen) -> str:
    """Return the state of a job, as people see it (record.state_of)."""
    return "waiting" if job.lack else "rolling_back" if job.phase == "rollback" else job.state


def _cancelled(job: JobSeen) -> tuple[str, bool]:
    """Return the state that a cancel gives to a job ("" = it changes nothing), and whether the job leaves its lines."""
    stays = bool(job.undo and job.taken and job.phase != "undone")
    if job.state in TERMINAL:
        return "", False
    if job.phase == "rollback":
        if not job.is_first_undo or job.ends == "cancelled":
            return "", False
        return job.ends if job.ends != "rolled_back" else "double_fault", True
    if job.state == "running" and job.fields["class"]:
        return "" if job.stop else STOPPING, not stays
    return "rolling_back" if stays else "cancelled", not stays


def of_retry(projection: Projection, jobs: Iterable[JobSeen], to: End) -> Plan:
    """Plan `Coordinator.retry` of each of these jobs. `to`: `back` or `front` of the priority."""
    hits: list[Hit] = []
    revived: list[str] = []
    for job in jobs:
        if job.state == "held" and job.after and not job.taken:
            becomes = projection.let_go_on(job)
            starts = becomes == "waiting" and projection.may_start(job) and not projection.flow.hold_back(job)
            hits.append(Hit(f"job {job.id}", "held", "ready" if starts else becomes))
        elif job.state in ("retrying", "held"):
            hits.append(Hit(f"job {job.id}", job.state, "waiting" if projection.flow.hold_back(job) else "ready"))
        elif (
            job.state in TERMINAL
            and job.state != "succeeded"
            and job.fields["class"]
            and not _is_won(projection.store, job)
        ):
            before = job.state
            hits.append(Hit(f"job {job.id}", before, projection.joins(job, to)))
            revived.append(job.id)
    ready = [hit.thing.removeprefix("job ") for hit in hits if hit.becomes == "ready"]
    plan = projection.plan("retry", hits, [*ready, *projection.going_on()])
    again = held_by(projection.store, revived)
    return replace(plan, dependants={"wait again": again} if again else {})


def _is_won(store: Store, job: JobSeen) -> bool:
    """True if the instance that this job grabs is being worked on, or was completed, by another job or process."""
    won = bool(job.grab) and store.read("HGET", store.key("grab", job.fields["keys"]), "state")
    return won in (b"running", b"complete")


def of_release(projection: Projection, key: str, holder: str) -> Plan:
    """Plan `Coordinator.release` of one lane. `holder`: only from this job; "": from any."""
    [lane] = lanes_at(projection.store, [key], 1)
    return of_releases(projection, [one.job_id for one in lane.holders if holder in ("", one.job_id)][:1])


def of_releases(projection: Projection, holders: Iterable[str]) -> Plan:
    hits = []
    for job in projection.jobs(holders):
        hits.append(Hit(f"job {job.id}", _state(job), "cancelled"))
        projection.flow.leave(job, ended=True)
        projection.gone[job.id] = job.keys
    return _with_dependants(projection, "release", hits)


def of_move(projection: Projection, jobs: Iterable[JobSeen], priority: int | None, to: End) -> Plan:
    """Plan `Coordinator.move` of each of these jobs. A scheduled or blocked job takes the place later."""
    hits: list[Hit] = []
    for job in jobs:
        if job.state not in ("waiting", "scheduled", "blocked"):
            continue
        number = int(job.priority or 0) if priority is None else priority
        hits.append(Hit(f"job {job.id}", job.state, f"{to} of priority {number}"))
        if job.state == "waiting":
            place = _HALF + len(hits)
            projection.place(job, (-place if to == "front" else place) - 2 * _HALF * number)
    return projection.plan("move", hits, projection.starts())


def of_lanes(projection: Projection, act: str, lanes: Iterable[Lane]) -> Plan:
    """See `Coordinator.pause` and `resume`."""
    hits: list[Hit] = []
    for lane in lanes:
        state, becomes = ("open", "paused") if act == "pause" else ("paused", "open")
        projection.open_lanes[lane.key] = act == "resume"
        hits.append(Hit(f"lane {lane.key}", state, becomes))
    projection.read_lines(lane.key for lane in lanes)
    for lane in lanes:
        if act == "pause":
            projection.call_back(lane.key)
    return projection.plan(act, hits, projection.starts())


def of_quota(projection: Projection, act: str, name: str, quota: Quota) -> Plan:
    """Plan an act after which a quota, or the default of names that begin so, has these bounds or this cool-down.

    `act`: quota, drop or cool. Raises InvalidJob.
    """
    client = QuotaClient(projection.store)
    prefix, is_default = named(name)
    if is_default:
        defaults = {one.name: one for one in client.defaults()}
        before = defaults.pop(name, None)
        after = {**defaults, name: quota} if act == "quota" else defaults
        for one in client.page(prefix, MOST_SHOWN, "")[0]:
            if one.declared is None and one.waiting:
                projection.flow.declare(one.name, bounded(one, default_of(one.name, after)))
        was = str(before) if before else "undeclared"
    else:
        [now] = client.read_many([name])
        was = "cools down" if act == "cool" and now.cools_for else _bounds(now)
        if act == "drop":
            quota = bounded(quota, default_of(name, {one.name: one for one in client.defaults()}))
        ends = quota.cools_for if act == "cool" else now.cools_for
        projection.flow.declare(name, replace(quota, used=now.used, waiting=now.waiting, cools_for=ends))
    becomes = "cools down" if quota.cools_for else _bounds(quota)
    hits = [Hit(f"quota {name}", was, becomes)] if was != becomes else []
    return projection.plan(act, hits, projection.starts())


def _bounds(quota: Quota) -> str:
    return "undeclared" if quota.concurrency is None and quota.rate is None else str(quota)


def of_retarget(store: Store, old: str, new: str, class_of: ClassOf) -> Plan:
    """Plan `Coordinator.retarget`: find the jobs that name the task `old`. `class_of`: see `class_for`."""
    named = dict(named_by(store, old, new, class_of))  # a dict: a job whose state changes meanwhile may come twice
    hits = [Hit(f"job {job_id}", state, f"{state}, {new}") for job_id, state in named.items() if state not in AT_WORK]
    plan = Projection(store).plan("retarget", hits[:MOST_SHOWN], (), len(hits))
    return replace(plan, at_work=len(named) - len(hits))


_BECOMES = {
    "failed": ("fails", "fail"),
    "held": ("is held", "are held"),
    "goes on": ("goes on without", "go on without"),
    "wait again": ("waits again, and goes on if it succeeds", "wait again, and go on if it succeeds"),
}


def dependants_text(plan: Plan) -> str:
    """Say what a plan makes of dependants: `at least 120 fail, 3 are held`; "" where it changes none."""
    at_least = "" if plan.all_dependants else "at least "
    return ", ".join(f"{at_least}{count:,} {_BECOMES[what][count != 1]}" for what, count in plan.dependants.items())
