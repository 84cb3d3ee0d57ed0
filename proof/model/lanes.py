"""The plain model: lanes, who stands in them, whose turn it is. Nothing of the coordinator's, and no Redis.

A line is not stored: it is the jobs of a key, those that were started first, the others by (priority, sequence).
"""

from collections import Counter
from dataclasses import dataclass, field

from proof.model.quotas import AT_CLAIM, MOST_FREED, Flow
from proof.model.ready import STARTED, WORTH
from proof.model.record import BEGINNING, TERMINAL, Job

RESOLUTION, GAP = 500, 2_000  # ms: how seldom the clock is noted, and what a silence is longer than
MARGIN, SPACE = 60_000_000, 10_000  # µs by which a server's first fence is ahead of the clock, and of the last one
SILENT = 3_000


@dataclass(eq=False)
class Node:
    """`app`: whose it is; `classes`: those it may take from; `work`: runner -> [token, deadline, id], which is
    forgotten at `lapse`.
    """

    name: str
    queues: frozenset[str]
    tasks: frozenset[str]
    labels: frozenset[str] = frozenset()
    incarnation: str = ""
    app: str = "shop"
    alive: int = 0
    ending: bool = False
    drained: bool = False
    closed: bool = False
    classes: set[str] = field(default_factory=set)
    work: dict[str, tuple[str, int, str]] = field(default_factory=dict)
    lapse: int | None = None
    gone: tuple[str, int] = ("", 0)
    lost: tuple[int, str, list[str]] | None = None

    def serves(self, kind: str) -> bool:
        app, queue, *labels = kind.split("\n")
        return app in ("", self.app) and queue in self.queues and self.labels.issuperset(labels)


class Lanes(Flow):
    def __init__(self) -> None:
        super().__init__()
        self.last = self.noted = BEGINNING
        self.away, self.gap = 0, GAP
        self.sequence = self.fronts = 0
        self.fence = 0
        self.alias: dict[str, str] = {}
        self.paused: dict[str, int | None] = {}  # until when; None: until somebody resumes it
        self.locks: dict[str, tuple[str, int]] = {}
        self.turns: dict[str, tuple[int, int]] = {}  # of locks: the fence that wakes the waiter, and until when
        self.counts: Counter[str] = Counter()
        self.kinds: set[str] = set()
        self.fresh = ""  # the class of the job that became ready last in this step, if it was new
        self.nodes: dict[str, Node] = {}
        self.owed: dict[str, int] = {}
        self.condemned: dict[str, int] = {}
        self.looks: dict[str, int] = {}
        self.coalesced: dict[str, int] = {}
        self.begun: set[tuple[str, str]] = set()  # a job, and a sub-task of it that a worker has begun
        self.tell_after = 0
        self.asking = ""

    # Looking

    def job(self, name: str) -> Job | None:
        return self.jobs.get(self.alias.get(name, name))

    def line(self, key: str) -> list[Job]:
        """Those that were started, by id, then those that wait, in order; of "" those without a key, in order."""
        inside = [job for job in self.jobs.values() if key in (job.keys or ("",)) and job.lined]
        if not key:
            return sorted(inside, key=lambda job: job.order)
        started = sorted((job for job in inside if job.state != "waiting"), key=lambda job: job.id)
        return started + sorted((job for job in inside if job.state == "waiting"), key=lambda job: job.order)

    def may_start(self, job: Job) -> bool:
        """It is the first in each of its lanes."""
        return all(key not in self.paused and self.line(key)[0] is job for key in job.keys)

    def position(self, job: Job | None, key: str) -> int:
        line = self.line(key)
        return line.index(job) if job in line else -1

    def busy(self, keys: tuple[str, ...]) -> str:
        """The first of these lines at whose end one more would wait; "" = none."""
        return next((key for key in keys if key in self.paused or self.line(key)), "")

    def waiting(self, key: str) -> int:
        return sum(job.state == "waiting" for job in self.line(key))

    # Turns

    def next_fence(self) -> int:
        self.server_began()
        ahead, space = (MARGIN, SPACE) if self.begins else (0, 1)
        self.fence, self.begins = max(self.fence + space, self.now * 1000 + self.micros + ahead), False
        return self.fence

    def next_order(self, priority: int, to: str = "back") -> tuple[int, int]:
        if to == "front":
            self.fronts += 1
            return -priority, -self.fronts
        self.sequence += 1
        return -priority, self.sequence

    def know(self, kind: str) -> None:
        """A class seen for the first time is learnt by the living nodes that serve it."""
        if kind not in self.kinds:
            self.kinds.add(kind)
            for node in self.nodes.values():
                if node.alive and node.serves(kind) and not node.closed:
                    node.classes.add(kind)
                    self.ready.part(node.name)

    def enter(self, job: Job, order: tuple[int, int]) -> None:
        """Into its lines, now or after it stood in none."""
        job.state, job.order = "waiting", order
        self.overtake(job)
        for key in job.keys[:1]:
            self.admit(key)
        if not job.keys:
            self.admit_one(job)

    def overtake(self, job: Job) -> None:
        """Who stood in front of a lane, and lacked a quota, has its turn no more."""
        for key in job.keys:
            first, *rest = self.line(key)
            if key not in self.paused and first is job and rest and rest[0].state == "waiting" and rest[0].lack:
                self.withdraw(rest[0])

    def admit(self, key: str) -> None:
        """Whoever may start becomes ready, or is granted its lock."""
        for job in self.line(key)[:1]:
            if job.state == "waiting" and self.may_start(job):
                self.admit_one(job)

    def admit_one(self, job: Job) -> None:
        """It is in front of all its lanes."""
        if job.place:
            if not self.hold_back(job):
                job.state, new = "ready", job.place.kind not in self.kinds
                self.put(job)
                self.fresh = job.place.kind if new else ""
        elif self.silent(job):
            self.leave(job, "failed")
        elif lack := self.lacking(job, offering=True):
            self.queue_up(job, lack)
        else:
            waits = job.id != self.asking
            self.take_units(job)
            self.take_back(job)
            self.acquire(job, job.token, min(job.ttl, SILENT) if waits else job.ttl)
            if waits:
                self.turns[job.id] = (job.fence, self.wall + job.ttl)

    # Quotas

    def end_step(self) -> None:
        """What comes last in each step: dependants of what has ended go on, and the queues of the quotas of which units
        came back.
        """
        self.tell_dependants()
        self.go_on()
        self.fresh = ""
        if self.changed:
            self.ready.server.alarm, self.changed = min(self.due.values(), default=None), False

    def tell_dependants(self) -> None:
        """See dependants.py."""

    def go_on(self) -> None:
        while self.freed:
            names, self.freed = dict.fromkeys(self.freed), []
            for name in names:
                self._let_go_on(name)

    def _let_go_on(self, name: str) -> None:
        self.going, freed = name, 0
        while freed < MOST_FREED and self._one_goes_on(name):
            freed += 1
        self.going = ""
        if freed == MOST_FREED:
            self.look_after(name, 0)

    def _one_goes_on(self, name: str) -> bool:
        for job in self.firsts(name):
            if self._moves(job, name):
                return True
            if self.holds_up(job, name):
                return False
        return False

    def _moves(self, job: Job, name: str) -> bool:
        """The first job of a kind in a queue: False if it stays there."""
        if job.state == "ready":
            if not self.hold_back(job):
                self.put(job, at_head=True)
        elif self.may_start(job):
            self.admit_one(job)
        else:
            self.withdraw(job)
        return job.lack != name

    def look_at_due(self, most: int) -> None:
        """The quotas of which a rate, or a cool-down, lets the queue go on."""
        now = self.now * 1000 + self.micros
        due = sorted((at, name.encode(), name) for name, at in self.due.items() if at <= now)
        for _, _, name in due[:most]:
            del self.due[name]
            self.freed.append(name)
            self.changed = True
        self.go_on()

    def before_claim(self) -> None:
        alarm = self.ready.server.alarm
        if alarm is not None and alarm <= self.now * 1000 + self.micros:
            self.look_at_due(AT_CLAIM)
        self.tell_dependants()
        self.go_on()

    def resume(self, key: str) -> int:
        if key not in self.paused:
            return 0
        del self.paused[key]
        self.admit(key)
        return 1

    def silent(self, job: Job) -> bool:
        """A waiter that does not ask any more."""
        return self.uptime - job.seen > SILENT

    def acquire(self, job: Job, token: str, ttl: int) -> None:
        """It is taken: a new token, a new fence, the full ttl."""
        for key in job.keys:
            assert key not in self.locks, f"{job.id} was taken, and {key} is locked: {self.locks}"
            self.locks[key] = (token, self.now + ttl)
        job.state, job.token, job.fence = "running", token, self.next_fence()
        job.attempt += 1
        job.started, job.lease = self.now, self.uptime + ttl
        job.taken = self.now if job.taken is None else job.taken

    def unlock(self, job: Job) -> None:
        for key in job.keys:
            if job.token and self.locks.get(key, ("", 0))[0] == job.token:
                del self.locks[key]

    # Ready jobs

    def put(self, job: Job, at_head: bool = False) -> None:
        """`at_head`: it was started before."""
        assert job.place
        self.know(job.place.kind)
        self.fresh = "" if job.place.kind == self.fresh else self.fresh
        self.sequence += 1
        score = self.sequence - (0 if at_head else WORTH * job.priority)
        self.ready.put(job.place.kind, STARTED if at_head else job.group, job.id, score)

    def unqueue(self, job: Job) -> None:
        if job.state == "ready" and job.place:
            listed = not job.lack
            self.withdraw(job)
            if listed:
                self.ready.remove(job.place.kind, self.stands_in(job), job.id)

    def stands_in(self, job: Job) -> str:
        return job.group if job.taken is None else STARTED

    def correct(self, job: Job, seen: bool = True) -> None:
        """An attempt is over: its group is charged for what it took."""
        if job.state == "running" and job.place:
            self.ready.correct(job.place.kind, job.group, job.place.task, self.now - job.started, seen)

    def put_back(self, job: Job) -> None:
        """To be taken again, at the head: it kept the front of its lines."""
        job.state = "ready"
        if not self.hold_back(job):
            self.put(job, at_head=True)

    # The end of a job

    def leave(self, job: Job, state: str) -> str:
        """Out of all lines; whoever stands behind goes on."""
        self.unlock(job)
        self.correct(job)
        self.withdraw(job)
        self.give_back(job, ended=True)
        self.look_again(job)
        job.state, job.ended, job.coalesce = state, self.wall, ""
        if job.place:
            self.counts[state] += 1
        if job.tell and job.place:
            self.owed[job.id] = self.now + self.tell_after
        if job.id in self.alias.values():
            self.coalesced[job.id] = job.kept_until
        parent = self.jobs.get(job.parent)
        if parent and parent.state == "parked" and not parent.event:
            self.looks[parent.id] = 0
        for key in job.keys:
            self.admit(key)
        return state

    def faded(self, job: Job) -> bool:
        """It succeeded: its record keeps only what tells about it."""
        return job.state == "succeeded" and not job.plain

    def forget_coalesced(self) -> None:
        """The ids that coalesced into a job are known as long as it is."""
        for name in [name for name, due in self.coalesced.items() if due <= self.wall]:
            if name in self.jobs:
                self.coalesced[name] = self.wall + 1000
            else:
                del self.coalesced[name]
                self.alias = {alias: of for alias, of in self.alias.items() if of != name}

    def look_again(self, job: Job) -> None:
        """It is parked no more: what of its sub-results is still at work is to be stopped."""
        if job.state == "parked" and not job.event:
            self.looks[job.id] = 0

    def jump(self, ms: int) -> None:
        """The server's clock goes on, or back; then somebody takes a step. Locks and records lapse."""
        self.wall += ms
        self.pass_by(ms)
        self.lapse()

    def lapse(self) -> None:
        """Redis forgets what it was to keep so long."""
        self.locks = {key: lock for key, lock in self.locks.items() if lock[1] > self.now}
        self.turns = {name: turn for name, turn in self.turns.items() if turn[1] > self.wall}
        self.condemned = {token: till for token, till in self.condemned.items() if till > self.wall}
        for job in [job for job in self.jobs.values() if job.over and job.kept_until <= self.wall]:
            del self.jobs[job.id]
        for node in self.nodes.values():
            if node.lapse is not None and node.lapse <= self.wall:
                node.work, node.lapse = {}, None

    def pass_by(self, ms: int) -> None:
        """The installation's clock never goes back. A silence counts little for leases, and holders may come back."""
        passed = self.now + ms - self.last
        self.now = max(self.now + ms, self.last)
        self.uptime = max(self.noted, self.now - self.away)
        if passed > self.gap:
            self.uptime = self.noted + RESOLUTION
            self.away = self.now + self.gap - self.uptime
        if passed < 0 or passed >= RESOLUTION:
            self.note_clock()

    def note_clock(self) -> None:
        self.last, self.noted = self.now, self.uptime

    def own_clock(self, instant: int, span: bool) -> int:
        """By the installation's clock."""
        return self.now + (instant if span else instant - self.wall)

    def counted(self) -> dict[str, int]:
        """What counts() must say."""
        names = ("waiting", "ready", "running", "scheduled", "retrying", "parked", "held", "rolling_back", "collected",
                 "blocked", "collecting")  # fmt: skip
        found = Counter(
            "rolling_back" if job.phase == "rollback" else "waiting" if job.lack else job.state
            for job in self.jobs.values()
            if job.place
        )
        kept = ("created", "retries", "losses", "faults", *TERMINAL)
        return {name: found[name] for name in names} | {name: self.counts[name] for name in kept}
