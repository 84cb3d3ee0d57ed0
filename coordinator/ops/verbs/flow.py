"""The quotas that a plan touches: which jobs of their queues would start once units come back.

It follows `rules/quotas.lua` and `rules/admit.lua`. Of a rate, a plan only knows whether it lets the next unit start
now; then it counts the bucket as full.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from coordinator.core.jobs.options import Use
from coordinator.core.quotas.client import Quota, QuotaClient
from coordinator.core.store.client import Store
from coordinator.core.store.reading import text_in
from coordinator.core.store.steps import quota_queue
from coordinator.core.store.wire import Arg
from coordinator.ops.search.quotas import places_in
from coordinator.ops.verbs.job_seen import JobSeen

MOST = 1000  # jobs of a queue, and ready jobs of a quota, that a plan reads
_STARTED = 2**53  # puts started jobs before all others


@dataclass(slots=True)
class _Seen:
    """A quota as it will be. `used`: units; `queue`: score and id of those that wait; `offers`: how many ready jobs of
    a kind use it; `offered`: their ids; `alone`: who uses all units.
    """

    quota: Quota
    used: int
    queue: list[tuple[float, str]]
    offers: Counter[str] = field(default_factory=Counter)
    offered: set[str] = field(default_factory=set)
    alone: str = ""

    def is_short(self, use: Use, kind: str | None, has: bool) -> bool:
        """Return True if one more job of this kind cannot start now. `has`: it has its units already.

        `kind`: "" = a lock; None: what is offered to others does not count.
        """
        quota, offered = self.quota, self._offered(use, kind)
        if quota.cools_for or quota.next_start or (quota.rate and offered >= (quota.burst or 1)):
            return True
        if has:
            return False
        busy = use.units == "all" and self.used + offered > 0
        most = math.inf if quota.concurrency is None else quota.concurrency
        return bool(self.alone) or busy or self.used + offered + self.units_of(use) > most

    def _offered(self, use: Use, kind: str | None) -> int:
        """Return the units that were offered to others of a kind; to all where it is that of locks."""
        if kind:
            return self.offers[kind] * self.units_of(use)
        return sum(number * self._units_in(other) for other, number in self.offers.items()) if kind == "" else 0

    def _units_in(self, kind: str) -> int:
        units = kind.partition(" ")[0]
        return self.units_of(Use("all" if units == "*" else int(units)))

    def units_of(self, use: Use) -> int:
        """Return how many units a job takes; all of a quota without bounds are one."""
        return use.units if use.units != "all" else max(self.quota.concurrency or 1, 1)


def _kind(job: JobSeen, use: Use) -> str:
    """Return the kind of a job in a quota (rules/queues.lua); "" = it is a lock."""
    units = "*" if use.units == "all" else use.units
    return f"{units} {job.fields['task']}\n{job.fields['class']}" if job.fields["class"] else ""


def bounded(quota: Quota, default: Quota | None) -> Quota:
    """Return a quota with the bounds of a default, or without any."""
    bounds = (default.concurrency, default.rate, default.burst) if default else (None, None, None)
    return replace(quota, concurrency=bounds[0], rate=bounds[1], burst=bounds[2], next_start=0.0)


def default_of(name: str, defaults: Mapping[str, Quota]) -> Quota | None:
    """Return the default that fits a name: of the longest prefix. `defaults`: by their names, such as `tenant/*`."""
    fitting = [one for own, one in defaults.items() if name.startswith(own[:-1])]
    return max(fitting, key=lambda one: len(one.name), default=None)


class Flow:
    """The quotas of one plan, each read once. `jobs`: reads a job; `place`: its score in its line."""

    def __init__(self, store: Store, jobs: Callable[[str], JobSeen], place: Callable[[JobSeen], float]) -> None:
        self._store, self._job, self._place = store, jobs, place
        self._quotas: dict[str, _Seen] = {}
        self._freed: dict[str, None] = {}
        self._gone: set[str] = set()

    def declare(self, name: str, quota: Quota) -> None:
        """Let a quota have other bounds, or a cool-down."""
        self._seen(name).quota = quota
        self._freed[name] = None

    def leave(self, job: JobSeen, ended: bool) -> None:
        """Give back what a job uses, and take back its offer and its place in a queue. `ended`: units that it keeps
        until its end, too.
        """
        if ended:
            self._gone.add(job.id)
        for name, use in job.uses.items():
            back = ended or use.until != "end" or (job.apart and not job.taken)
            held = self._units(name, job.id) if back else 0
            seen = self._seen(name)
            seen.used -= held
            seen.alone = "" if held and seen.alone == job.id else seen.alone
            offered = job.id in seen.offered
            seen.offers[_kind(job, use)] -= offered
            seen.offered.discard(job.id)
            if held or offered:
                self._freed[name] = None
        if job.lack:
            self._unqueue(job.lack, job)
            self._freed[job.lack] = None
            job.fields["lack"] = ""

    def hold_back(self, job: JobSeen) -> bool:
        """Put a job that has its turn in all lanes into the queue of a quota that it lacks, and return True; or let it
        be ready, or have its lock.
        """
        name = self._lacking(job)
        if name and job.lack == name:
            return True
        if job.lack:
            self._unqueue(job.lack, job)
            self._freed[job.lack] = None
        job.fields["lack"] = name
        if name:
            keeps = job.uses[name].until == "end" and job.taken and self._units(name, job.id)
            insort(self._seen(name).queue, (self._score(job) - _STARTED * bool(keeps), job.id))
            return True
        for used, use in job.uses.items() if job.phase != "rollback" else ():
            if self._has(used, job, use):
                continue
            seen = self._seen(used)
            if job.fields["class"]:
                seen.offers[_kind(job, use)] += 1
                seen.offered.add(job.id)
            else:
                seen.used += seen.units_of(use)
                seen.alone = job.id if use.units == "all" else seen.alone
        return False

    def go_on(self, stays: Callable[[JobSeen], bool]) -> list[str]:
        """Let the queues go on of which units came back; return the jobs that start.

        `stays`: a waiting job may still start by its lanes; else it leaves the queue.
        """
        found: list[str] = []
        while self._freed:
            name, _ = self._freed.popitem()
            found += self._let_go_on(name, stays)
        return found

    def _let_go_on(self, name: str, stays: Callable[[JobSeen], bool]) -> list[str]:
        found: list[str] = []
        passed: set[str] = set()
        while job := self._next(name, passed):
            if job.id in self._gone or (job.state == "waiting" and not stays(job)):
                self._unqueue(name, job)
                job.fields["lack"] = ""
            elif not self.hold_back(job):
                found.append(job.id)
            elif job.lack == name and self._holds_up(name, job):
                break
            elif job.lack == name:
                passed.add(_kind(job, job.uses[name]))
        return found

    def _next(self, name: str, passed: set[str]) -> JobSeen | None:
        """Return the first job of a queue whose kind is not among those passed."""
        for _, job_id in [*self._seen(name).queue]:
            job = self._job(job_id)
            if name not in job.uses:  # it has ended meanwhile
                self._unqueue(name, job)
            elif _kind(job, job.uses[name]) not in passed:
                return job
        return None

    def _holds_up(self, name: str, job: JobSeen) -> bool:
        """Return False if the first job of its kind only waits since others of its kind are offered."""
        if not job.fields["class"]:
            return True
        seen, use, has = self._seen(name), job.uses[name], self._has(name, job, job.uses[name])
        return seen.is_short(use, None, has) or not seen.is_short(use, _kind(job, use), has)

    def _is_behind(self, name: str, job: JobSeen) -> bool:
        """Return True if a job that comes before holds this one up."""
        own, passed = _kind(job, job.uses[name]), set[str]()
        for place, job_id in self._seen(name).queue:
            if place > self._score(job):
                break
            other = self._job(job_id)
            if job_id == job.id:
                return False
            kind = _kind(other, other.uses[name]) if name in other.uses else None
            if kind is None or kind in passed:
                continue
            if kind == own or self._holds_up(name, other):
                return True
            passed.add(kind)
        return False

    def _lacking(self, job: JobSeen) -> str:
        """Return the first quota that a job lacks; "" = none."""
        if job.phase == "rollback":
            return ""
        for name, use in job.uses.items():
            seen = self._seen(name)
            has = self._has(name, job, use)
            if (not has and self._is_behind(name, job)) or seen.is_short(use, _kind(job, use), has):
                return name
        return ""

    def _has(self, name: str, job: JobSeen, use: Use) -> bool:
        """Return True if a job has units of a quota before its claim: they were set apart, or it keeps them."""
        return bool((job.apart or use.until == "end") and self._units(name, job.id))

    def _score(self, job: JobSeen) -> float:
        return int(job.taken) - _STARTED if job.taken else self._place(job)

    def _units(self, name: str, job_id: str) -> int:
        return int(self._store.read("HGET", self._store.key("quota-users", name), job_id) or 0)

    def _unqueue(self, name: str, job: JobSeen) -> None:
        seen = self._seen(name)
        seen.queue = [one for one in seen.queue if one[1] != job.id]

    def _seen(self, name: str) -> _Seen:
        if name not in self._quotas:
            key = self._store.key
            asked: list[Sequence[Arg]] = [quota_queue.looking(self._store, name, MOST)]
            asked += [("ZRANGE", key("quota-offers", name), 0, MOST - 1), ("HGET", key("quota", name), "alone")]
            queue, offers, alone = self._store.read_many(asked)
            [quota] = QuotaClient(self._store).read_many([name])
            pairs = [member.decode().rpartition("\n\n") for member in offers]
            kinds, ready = Counter(kind for kind, _, _ in pairs), {job_id for _, _, job_id in pairs}
            self._quotas[name] = _Seen(quota, quota.used, places_in(queue), kinds, ready, text_in(alone))
        return self._quotas[name]
