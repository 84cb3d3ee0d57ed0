"""The plain model: quotas, of which jobs use units while they run. A lane gives order, a quota a number.

The queue of a quota is not stored: it is the jobs that lack it, first those that keep units of it until their end, then
those that were started, then the others by (priority, sequence). Nor are its offers: they are the ready jobs that use
it, and whom nobody has claimed yet.
"""

from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from proof.model.ready import Ready
from proof.model.record import BEGINNING, Job, Use

APART = 60_000  # ms after which who lacks one of several quotas has units of the others set apart
AGAIN = 1_000  # ms until another try where these were offered to others
MOST_NAMED = 16  # offered jobs that an explanation names
MOST_FREED = 16  # jobs of one queue that a step lets go on
AT_CLAIM, AT_SWEEP = 16, 100  # quotas that are due, of which one look lets the queues go on


class Bounds(NamedTuple):
    """Units that may be in use at once; `number` may start in `period` ms, and `burst` more at once. None: any."""

    limit: int | None = None
    number: int | None = None
    period: int | None = None
    burst: int | None = None

    @property
    def most(self) -> float:
        return inf if self.limit is None else self.limit

    @property
    def step(self) -> float:
        """µs of one unit; 0: at any rate."""
        return self.period * 1000 / self.number if self.number and self.period else 0

    def units(self, use: Use) -> int:
        """All of a quota without a limit are one."""
        return use.units if use.units else max(1, self.limit or 1)


@dataclass
class Quota:
    """`users`: their units, by id; `tat`: the uptime in µs at which its bucket is full again.

    `charged`: when units were taken last, and how many; `begun`: of the server that counted so; `until`: when its
    cool-down ends, by the installation's clock or by the wall; `alone`: who uses all of it.
    """

    bounds: Bounds | None = None
    users: dict[str, int] = field(default_factory=dict)
    tat: int = 0
    charged: tuple[int, int] | None = None
    begun: int | None = None
    until: tuple[bool, int] | None = None
    alone: str = ""

    @property
    def used(self) -> int:
        return sum(self.users.values())


class Lack(NamedTuple):
    """The quota that a job lacks, its place among those that it uses, and ms until that may be otherwise (None: once
    units come back).
    """

    place: int
    quota: str
    wait: float | None


class Flow:
    """`listed`: names that are declared or in use; `due`: when, in µs, the queues of which go on, and whether that has
    `changed`; `freed`: whose queues go on at the end of this step;
    `going`: the one that does now. `began`: the uptime in µs at which the server began.
    """

    def __init__(self) -> None:
        self.wall = self.now = self.uptime = BEGINNING
        self.micros = 0
        self.begins = True
        self.jobs: dict[str, Job] = {}
        self.ready = Ready()
        self.quotas: dict[str, Quota] = {}
        self.defaults: dict[str, Bounds] = {}
        self.listed: set[str] = set()
        self.due: dict[str, int] = {}
        self.changed = False
        self.freed: list[str] = []
        self.going = ""
        self.began: int | None = None

    # Looking

    def quota(self, name: str) -> Quota:
        return self.quotas.setdefault(name, Quota())

    def bounds(self, name: str) -> Bounds | None:
        """As it is declared, else by the default of the longest prefix."""
        prefixes = [name[: at + 1] for at, letter in enumerate(name) if letter == "/"]
        fit = [self.defaults[prefix] for prefix in ("", *prefixes) if prefix in self.defaults]
        return self.quota(name).bounds or (fit[-1] if fit else None)

    def read(self, name: str) -> Bounds:
        """Whoever asks for a rate finds out whether the server has begun."""
        bounds = self.bounds(name) or Bounds()
        if bounds.step:
            self.server_began()
        return bounds

    def server_began(self) -> int | None:
        if self.begins and not self.ready.server.noted:
            self.began, self.ready.server.noted = self.uptime * 1000 + self.micros, True
        return self.began

    def full_at(self, name: str, bounds: Bounds) -> tuple[float, int | None]:
        """When its bucket is full, and by the count of which server. One that begins finds an empty bucket."""
        quota, began = self.quota(name), self.server_began()
        full: float = quota.tat
        if quota.charged:  # whatever the rate was then, the bucket was empty at most
            at, units = quota.charged
            full = min(full, at + max(bounds.burst or 0, units) * bounds.step)
        if began is None or began == quota.begun:
            return full, quota.begun
        return max(full, began + (bounds.burst or 0) * bounds.step), began

    def cooling(self, name: str) -> int:
        """ms; 0: it is open."""
        own, until = self.quota(name).until or (True, 0)
        return max(0, until - (self.now if own else self.wall))

    def queue(self, name: str) -> list[Job]:
        return sorted(
            (job for job in self.jobs.values() if job.lack == name), key=lambda job: (self._place(job, name), job.id)
        )

    def _place(self, job: Job, name: str) -> tuple[int, tuple[int, ...]]:
        """Who has units of it already goes first."""
        has = [use for use in job.uses if use.name == name and (job.apart or use.stays)]
        if not has or job.id not in self.quota(name).users:
            return _place(job)
        priority, sequence = job.order
        return (0, (sequence + priority * 2**44,)) if job.taken is None else (-1, (job.taken,))

    def kept(self, job: Job) -> list[str]:
        """The quotas of which it has units until its end."""
        users = [use.name for use in job.uses if use.stays and job.id in self.quota(use.name).users]
        return users if job.taken is not None else []

    def can_run(self, job: Job) -> bool:
        """A living node has its class and its task."""
        raise NotImplementedError

    def offered_units(self, name: str) -> int:
        """Of whatever task and class, if a node can run these."""
        bounds = self.bounds(name) or Bounds()
        offers = [job for job in self.jobs.values() if name in job.offered and self.can_run(job)]
        return sum(bounds.units(use_of(job, name)) for job in offers)

    def offers(self, name: str, like: Job) -> int:
        """Units of the others of this kind that are offered; for a lock, which would be faster, of all."""
        if not like.place:
            return self.offered_units(name)
        bounds, kind = self.bounds(name) or Bounds(), kind_of(like, name)
        others = [job for job in self.jobs.values() if name in job.offered and job is not like]
        return sum(bounds.units(use_of(job, name)) for job in others if kind_of(job, name) == kind)

    def alike(self, job: Job, name: str) -> list[Job]:
        """The jobs of its kind that are offered, the first by their ids."""
        found = [one for one in self.jobs.values() if name in one.offered and kind_of(one, name) == kind_of(job, name)]
        return sorted(found, key=lambda one: one.id.encode())[:MOST_NAMED] if job.place else []

    def firsts(self, name: str) -> list[Job]:
        """The first job of each kind in a queue."""
        found: dict[str, Job] = {}
        for job in self.queue(name):
            found.setdefault(kind_of(job, name), job)
        return sorted(found.values(), key=lambda job: (self._place(job, name), kind_of(job, name).encode()))

    def holds_up(self, job: Job, name: str) -> bool:
        """The first job of its kind: it holds up the others unless it only waits since jobs of its kind are offered."""
        use = use_of(job, name)
        if not job.place:
            return True
        return bool(self._short(job, use, 0)) or not self._short(job, use, self.offers(name, job))

    def ahead(self, job: Job, name: str) -> Job | None:
        """The job in the queue behind which this one waits."""
        for one in self.firsts(name):
            if self._place(one, name) > _place(job):
                break
            if one is job:
                break
            if kind_of(one, name) == kind_of(job, name) or self.holds_up(one, name):
                return one
        return None

    def has(self, job: Job, use: Use) -> bool:
        """Units that were set apart, or that it keeps until its end."""
        return (job.apart or use.stays) and job.id in self.quota(use.name).users

    def lacking(self, job: Job, offering: bool) -> Lack | None:
        """The first quota in the order of names of which it may not have its units now. `offering`: those that were
        offered before come first.
        """
        for index, use in enumerate(job.uses if job.phase != "rollback" else ()):
            self.read(use.name)
            if not self.has(job, use) and self.ahead(job, use.name):
                return Lack(index, use.name, None)
            found = self._short(job, use, self.offers(use.name, job) if offering else 0)
            if found:
                return Lack(index, use.name, found[0])
        return None

    def _short(self, job: Job, use: Use, offered: int) -> tuple[float | None] | None:
        if cooling := self.cooling(use.name):
            return (cooling,)
        bounds, quota = self.read(use.name), self.quota(use.name)
        units = bounds.units(use)
        enough = quota.used + offered + units <= bounds.most and not (use.all and quota.used + offered)
        if (quota.alone or not enough) and not self.has(job, use):
            return (None,)
        if not bounds.step:
            return None
        now, burst = self.uptime * 1000 + self.micros, bounds.burst or 0
        full, _ = self.full_at(use.name, bounds)
        wait = max(full, now) + min(units, burst) * bounds.step - burst * bounds.step - now
        if wait + offered * bounds.step <= 0:
            return None
        return (wait / 1000 if wait > 0 else None,)

    # Waiting

    def look_after(self, name: str, ms: float) -> None:
        at = round(self.now * 1000 + self.micros + ms * 1000)
        self.due[name], self.changed = min(at, self.due.get(name, at)), True

    def hold_back(self, job: Job) -> bool:
        """It stands in a queue now, or is offered: then it is to be made ready."""
        if not job.uses:
            return False
        if lack := self.lacking(job, offering=True):
            self.queue_up(job, lack)
            return True
        self._leave_queue(job)
        if job.phase != "rollback":
            job.offered = tuple(use.name for use in job.uses if not self.has(job, use))
        return False

    def queue_up(self, job: Job, lack: Lack) -> None:
        if job.lack != lack.quota:
            self._leave_queue(job)
        job.lack, job.lacked = lack.quota, job.lacked or self.now
        self.listed.add(lack.quota)
        if lack.wait is not None:
            self.look_after(lack.quota, lack.wait)
        if not job.uses[1:]:
            return
        if self.kept(job):
            self._take_apart_back(lack.quota)
        if self.now - job.lacked < APART:
            self.look_after(lack.quota, job.lacked + APART - self.now)
            return
        for use in job.uses[: lack.place]:
            units = (self.bounds(use.name) or Bounds()).units(use)
            if job.id in self.quota(use.name).users:
                continue
            if (
                self.quota(use.name).used + units + self.offered_units(use.name)
                > (self.bounds(use.name) or Bounds()).most
            ):
                self.look_after(job.lack, AGAIN)
            else:
                self._use(job, use)
                job.apart = True

    def _take_apart_back(self, name: str) -> None:
        """From those that wait and for which they were set apart."""
        for job in [self.jobs[user] for user in self.quota(name).users if user in self.jobs]:
            for use in job.uses if job.apart and job.lack else ():
                if use.name == name and not (use.stays and job.taken is not None):
                    self._give_back_one(job, use)

    def _leave_queue(self, job: Job) -> None:
        if job.lack and job.lack != self.going:
            self.freed.append(job.lack)
        job.lack = ""

    def take_back(self, job: Job) -> None:
        """Neither offered nor in a queue."""
        self.freed += job.offered
        job.offered = ()
        self._leave_queue(job)

    def withdraw(self, job: Job) -> None:
        """It has not its turn any more: what was set apart for it comes back."""
        self.take_back(job)
        if job.apart:
            self.give_back(job, ended=job.taken is None)
        job.lacked, job.apart = 0, False

    # Units

    def _use(self, job: Job, use: Use) -> None:
        if not self.quota(use.name).used:
            self.listed.add(use.name)
        quota = self.quota(use.name)
        quota.users[job.id] = (self.bounds(use.name) or Bounds()).units(use)
        quota.alone = job.id if use.all else quota.alone

    def take_units(self, job: Job) -> None:
        """At its claim, of all its quotas: it lacks none."""
        job.offered = ()
        for use in job.uses if job.phase != "rollback" else ():
            if not self.has(job, use):
                self._use(job, use)
            bounds, quota = self.bounds(use.name) or Bounds(), self.quota(use.name)
            if bounds.step:
                full, quota.begun = self.full_at(use.name, bounds)
                now, units = self.uptime * 1000 + self.micros, bounds.units(use)
                full = max(full, now) + units * bounds.step
                quota.tat, quota.charged = round(full), (now, units)
                if self.queue(use.name):
                    wait = full + bounds.step - (bounds.burst or 0) * bounds.step - now
                    self.look_after(use.name, max(0, wait) / 1000)
        if job.lacked:
            job.lacked, job.apart = 0, False

    def take_again(self, job: Job) -> None:
        """It was taken for lost, and lives: this alone may use more units than there are."""
        for use in job.uses if job.phase != "rollback" else ():
            if job.id not in self.quota(use.name).users:
                self.read(use.name)
                self._use(job, use)

    def give_back(self, job: Job, ended: bool = False) -> None:
        """`ended`: also what it keeps until its end."""
        for use in job.uses:
            if ended or not use.stays:
                self._give_back_one(job, use)

    def _give_back_one(self, job: Job, use: Use) -> None:
        quota = self.quota(use.name)
        if quota.users.pop(job.id, None):
            quota.alone = "" if use.all else quota.alone
            self.freed.append(use.name)

    # Operators, and the code of jobs

    def declare(self, name: str, prefix: bool, bounds: Bounds) -> int:
        if prefix:
            if self.defaults.get(name) == bounds:
                return 0
            self.defaults[name] = bounds
            self._all_go_on(name)
        else:
            if self.quota(name).bounds == bounds:
                return 0
            self.quota(name).bounds = bounds
            self.listed.add(name)
            self.freed.append(name)
        return 1

    def drop_quota(self, name: str, prefix: bool) -> int:
        if prefix:
            known = self.defaults.pop(name, None)
            self._all_go_on(name)
        else:
            quota = self.quota(name)
            known, quota.bounds = quota.bounds, None
            quota.tat, quota.charged, quota.begun = 0, None, None
            self.freed.append(name)
        return int(known is not None)

    def _all_go_on(self, prefix: str) -> None:
        for name in self.listed:
            if name.startswith(prefix) and self.queue(name):
                self.look_after(name, 0)

    def cool(self, name: str, until: tuple[bool, int] | None) -> int:
        """None: it is open again. An earlier end than it has changes nothing."""
        before = self.quota(name).until
        if until is None:
            self.quota(name).until = None
            self.freed.append(name)
        else:
            self.cool_down(name, until)
        return int(before != self.quota(name).until)

    def cool_down(self, name: str, until: tuple[bool, int]) -> None:
        self.read(name)
        own, at = until
        left = at - (self.now if own else self.wall)
        if left > self.cooling(name):
            self.quota(name).until = until
            self.listed.add(name)
            self.look_after(name, left)

    def audit(self) -> None:
        """All that is used has a user, so nothing is to be repaired; what is of no account is forgotten."""
        for name in sorted(self.listed, key=str.encode)[:AT_SWEEP]:
            self.freed.append(name)
            self._forget(name)

    def _forget(self, name: str) -> None:
        quota, bounds = self.quota(name), self.bounds(name)
        filling = bool(bounds and bounds.step and self.full_at(name, bounds)[0] > self.uptime * 1000 + self.micros)
        offered = any(name in job.offered for job in self.jobs.values())
        if not (quota.bounds or quota.used or filling or self.cooling(name) or self.queue(name) or offered):
            self.quotas[name] = Quota()
            self.listed.discard(name)


def use_of(job: Job, name: str) -> Use:
    return next(use for use in job.uses if use.name == name)


def kind_of(job: Job, name: str) -> str:
    """Jobs of one task and class that use as many units of a quota take one another's place; all locks are of one
    kind.
    """
    units = use_of(job, name).units or "*"
    return f"{units} {job.place.task}\n{job.place.kind}" if job.place else ""


def _place(job: Job) -> tuple[int, tuple[int, ...]]:
    """Started jobs come first, the others by priority and sequence."""
    return (1, job.order) if job.taken is None else (0, (job.taken,))
