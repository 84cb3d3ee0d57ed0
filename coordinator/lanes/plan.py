"""What an act on jobs would do, by reading alone: which jobs it hits, what becomes of each, and which start then.

It follows the rules of the functions (`rules/cancel.lua`, `rules/admit.lua`, `steps/job.lua`), and is right as long as
nothing comes between. tests/proof/test_plans.py holds plans and acts together over random states.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from coordinator.errors import UnknownJob
from coordinator.jobs.record import TERMINAL, fields_of_many
from coordinator.jobs.retarget import AT_WORK, ClassOf, named_by
from coordinator.jobs.search import scored
from coordinator.jobs.states import End
from coordinator.lanes.view import Lane, lanes_at
from coordinator.store.client import Store
from coordinator.store.times import instant

_FIELDS = (
    "state", "keys", "class", "phase", "ends", "back", "undo", "taken", "stop", "grab", "exclusive", "priority", "seen",
    "alias", "score",
)  # fmt: skip
_HALF = 2**43  # the scores of a priority reach so far in both directions (rules/line.lua)
_SILENT = 3000  # ms after which a waiter for a lock counts as dead (rules/locks.lua)
MOST_SHOWN = 1000  # hits
_APART = ("scheduled", "collected")
STOPPING = "stopping"  # becomes: its process is stopped first; then it is cancelled, or rolled back


@dataclass(frozen=True, slots=True)
class Hit:
    """A thing that an act would change: its state, and what becomes of it."""

    thing: str
    state: str
    becomes: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What an act would do, at the moment `as_of`.

    `starts`: the jobs that become ready, or get their lock, once the hits have left their lanes: at once, or once the
    process of a hit was stopped. `count`: of all hits; `hits` has the first of them; `complete`: False where it was
    counted no further. `at_work`: how many jobs a retarget leaves as they are, since they run or are parked.
    """

    act: str
    hits: tuple[Hit, ...]
    starts: tuple[str, ...]
    count: int
    as_of: datetime
    at_work: int = 0
    complete: bool = True


class JobSeen:
    def __init__(self, job_id: str, values: Sequence[str]) -> None:
        self.id, self.fields = job_id, dict(zip(_FIELDS, values, strict=True))

    def __getattr__(self, name: str) -> str:
        return self.fields[name]

    @cached_property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.fields["keys"].split("\n"))

    @property
    def is_first_undo(self) -> bool:
        """Its rollback has not begun."""
        return self.fields["state"] == "ready" and self.fields["back"].partition(" ")[0] in ("", "0")


class Projection:
    """The lines and records of one plan, each read once.

    `gone`: the jobs that leave their lines. `limits`: how many jobs may run in the lanes that an act opens or closes.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.gone: dict[str, tuple[str, ...]] = {}
        self._jobs: dict[str, JobSeen] = {}
        self.limits: dict[str, int] = {}
        self._joined: list[JobSeen] = []
        self._called_back: set[str] = set()
        self._placed: dict[str, dict[str, float]] = {}  # by key: the scores of jobs that come to other places
        self._lines: dict[str, tuple[int, dict[str, float]]] = {}
        self._clock = store.clock()

    def jobs(self, ids: Iterable[str]) -> list[JobSeen]:
        wanted = list(dict.fromkeys(ids))
        unread = [job_id for job_id in wanted if job_id not in self._jobs]
        for job_id, values in zip(unread, fields_of_many(self.store, unread, *_FIELDS), strict=True):
            self._jobs[job_id] = JobSeen(job_id, values)
        return [self._jobs[job_id] for job_id in wanted]

    def job(self, job_id: str) -> JobSeen:
        """The job of this id, or the one into which it coalesced. Raises UnknownJob."""
        [job] = self.jobs([job_id])
        if job.alias:
            [job] = self.jobs([job.alias])
        if not job.state:
            raise UnknownJob(job_id)
        return job

    def existing(self, ids: Iterable[str]) -> list[JobSeen]:
        """Those of which there is a record."""
        return [job for job in self.jobs(ids) if job.state]

    def line(self, key: str) -> tuple[int, list[JobSeen]]:
        """How many jobs of the lane may run, 0 where it is paused; and its first jobs, as they will stand."""
        placed = self._placed.get(key, {})
        self.read_lines([key])
        limit, line = self._lines[key]
        jobs = self.jobs(job_id for job_id in line | placed if job_id not in self.gone)
        scores = line | placed
        jobs.sort(key=lambda job: (scores[job.id] if job.state == "waiting" else -math.inf, job.id))
        return self.limits.get(key, limit), jobs

    def read_lines(self, keys: Iterable[str]) -> None:
        """Read those lines that were not, in a few round trips, as far as the jobs that are gone or placed reach."""
        if not (unread := [key for key in keys if key not in self._lines]):
            return
        leaving = Counter(key for keys in self.gone.values() for key in keys)
        leaving.update({key: len(placed) for key, placed in self._placed.items()})
        lanes = lanes_at(self.store, unread, 1)
        bounds = [2 * max(one.limit, self.limits.get(one.key, 0), 1) + leaving[one.key] + 3 for one in lanes]
        asked = [
            ("ZRANGE", self.store.key("line", lane.key), 0, bound, "WITHSCORES")
            for lane, bound in zip(lanes, bounds, strict=True)
        ]
        for lane, members in zip(lanes, self.store.read_many(asked), strict=True):
            line = {one.decode(): at for one, at in scored(members) if not one.startswith(b"\1")}
            self._lines[lane.key] = 0 if lane.pause else lane.limit, line
        self.jobs(job_id for key in unread for job_id in self._lines[key][1])

    def place(self, job: JobSeen, score: float) -> None:
        """Let it wait at another place of its lines."""
        job.fields["state"] = "waiting"
        for key in job.keys:
            self._placed.setdefault(key, {})[job.id] = score

    def call_back(self, key: str) -> None:
        """Put the ready jobs that nobody claimed back to their places (steps/lane.lua)."""
        for job in self.line(key)[1]:
            if job.state == "ready" and not job.taken:
                self._called_back.add(job.id)
                self.place(job, float(job.score or self._lines[key][1][job.id]))

    def may_start(self, job: JobSeen) -> bool:
        """True if it is among the first in each of its lanes (rules/admit.lua)."""
        for key in job.keys:
            limit, line = self.line(key)
            ids = [one.id for one in line]
            place = ids.index(job.id) if job.id in ids else limit
            if place >= limit or (place and (job.exclusive or any(one.exclusive for one in line[:place]))):
                return False
        return True

    def starts(self) -> list[str]:
        """The jobs that wait and then start."""
        found: dict[str, None] = {}
        touched = (tuple(self.limits), *self.gone.values(), tuple(self._placed))
        every = dict.fromkeys(key for keys in touched for key in keys)
        self.read_lines(every)
        for key in every:
            while silent := [job for job in self._starting(key) if self._is_silent(job)]:
                self.gone[silent[0].id] = silent[0].keys
            found |= dict.fromkeys(job.id for job in self._starting(key) if job.id not in self._called_back)
        return list(found)

    def _starting(self, key: str) -> list[JobSeen]:
        limit, line = self.line(key)
        return [job for job in line[:limit] if job.state == "waiting" and self.may_start(job)]

    def _is_silent(self, job: JobSeen) -> bool:
        """True for a waiter for a lock that asks no more: it leaves the line instead."""
        return bool(not job.fields["class"] and job.seen and self._clock.uptime - int(job.seen) > _SILENT)

    def joins(self, job: JobSeen, to: End) -> str:
        """The state of a job that joins its lines anew; those that joined before stand there, too."""
        state = "ready"
        for key in job.keys:
            limit, line = self.line(key)
            own = int(job.priority or 0)
            line += [one for one in self._joined if key in one.keys]
            ahead = [one for one in line if one.state != "waiting" or _is_ahead(int(one.priority or 0), own, to)]
            if len(ahead) >= limit or (ahead and (job.exclusive or any(one.exclusive for one in ahead))):
                state = "waiting"
        job.fields["state"] = state
        self._joined.append(job)
        return state

    def plan(self, act: str, hits: Sequence[Hit], starts: Sequence[str], count: int | None = None) -> Plan:
        number = len(hits) if count is None else count
        return Plan(act, tuple(hits), tuple(starts), number, instant(self._clock.wall))


def _is_ahead(other: int, own: int, to: End) -> bool:
    return other > own or (other == own and to == "back")


def of_cancel(look: Projection, jobs: Iterable[JobSeen]) -> Plan:
    """See `Coordinator.cancel`."""
    hits: list[Hit] = []
    for job in jobs:
        becomes, leaves = _cancelled(job)
        if not becomes:
            continue
        hits.append(Hit(f"job {job.id}", "rolling_back" if job.phase == "rollback" else job.state, becomes))
        if leaves and job.state not in _APART:
            look.gone[job.id] = job.keys
    return look.plan("cancel", hits, look.starts())


def _cancelled(job: JobSeen) -> tuple[str, bool]:
    """What a cancel makes of a job, "" where nothing; and whether it leaves its lines then."""
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


def of_retry(look: Projection, jobs: Iterable[JobSeen], to: End) -> Plan:
    """See `Coordinator.retry`."""
    hits: list[Hit] = []
    for job in jobs:
        if job.state in ("retrying", "held"):
            hits.append(Hit(f"job {job.id}", job.state, "ready"))
        elif (
            job.state in TERMINAL and job.state != "succeeded" and job.fields["class"] and not _is_won(look.store, job)
        ):
            before = job.state
            hits.append(Hit(f"job {job.id}", before, look.joins(job, to)))
    return look.plan("retry", hits, [hit.thing.removeprefix("job ") for hit in hits if hit.becomes == "ready"])


def _is_won(store: Store, job: JobSeen) -> bool:
    """True while another has the job's instance, or has completed it."""
    won = bool(job.grab) and store.read("HGET", store.key("grab", job.fields["keys"]), "state")
    return won in (b"running", b"complete")


def of_release(look_: Projection, key: str, holder: str) -> Plan:
    """See `Coordinator.release`."""
    [lane] = lanes_at(look_.store, [key], 1)
    return of_releases(look_, [one.job_id for one in lane.holders if holder in ("", one.job_id)][:1])


def of_releases(look_: Projection, holders: Iterable[str]) -> Plan:
    hits = []
    for job in look_.jobs(holders):
        hits.append(Hit(f"job {job.id}", "rolling_back" if job.phase == "rollback" else job.state, "cancelled"))
        look_.gone[job.id] = job.keys
    return look_.plan("release", hits, look_.starts())


def of_move(look: Projection, jobs: Iterable[JobSeen], priority: int | None, to: End) -> Plan:
    """See `Coordinator.move`. A scheduled job gets its place for later."""
    hits: list[Hit] = []
    for job in jobs:
        if job.state not in ("waiting", "scheduled"):
            continue
        number = int(job.priority or 0) if priority is None else priority
        hits.append(Hit(f"job {job.id}", job.state, f"{to} of priority {number}"))
        if job.state == "waiting":
            place = _HALF + len(hits)
            look.place(job, (-place if to == "front" else place) - 2 * _HALF * number)
    return look.plan("move", hits, look.starts())


def of_lanes(look: Projection, act: str, lanes: Iterable[Lane], limit: int) -> Plan:
    """See `Coordinator.pause`, `resume` and `set_limit`."""
    hits: list[Hit] = []
    for lane in lanes:
        state, becomes = ("open", "paused") if act == "pause" else ("paused", "open")
        if act == "limit":
            state, becomes = str(lane.limit), str(limit)
            look.limits[lane.key] = 0 if lane.paused else limit
        else:
            look.limits[lane.key] = 0 if act == "pause" else lane.limit
        hits.append(Hit(f"lane {lane.key}", state, becomes))
    look.read_lines(lane.key for lane in lanes)
    for lane in lanes:
        if act == "pause" or (act == "limit" and limit < lane.limit):
            look.call_back(lane.key)
    return look.plan(act, hits, look.starts())


def of_retarget(store: Store, old: str, new: str, class_of: ClassOf) -> Plan:
    """See `Coordinator.retarget`."""
    named = dict(named_by(store, old, new, class_of))  # one that moves on meanwhile may come twice
    hits = [Hit(f"job {job_id}", state, f"{state}, {new}") for job_id, state in named.items() if state not in AT_WORK]
    plan = Projection(store).plan("retarget", hits[:MOST_SHOWN], (), len(hits))
    return replace(plan, at_work=len(named) - len(hits))
