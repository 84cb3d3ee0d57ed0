"""The plain model: lanes, who stands in them, whose turn it is. Nothing of the coordinator's, and no Redis.

A line is not stored: it is the jobs of a key, those that were started first, the others by (priority, sequence).
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from proof.model.record import BEGINNING, TERMINAL, Job

RESOLUTION, GAP = 500, 2_000  # ms: how seldom the clock is noted, and what a silence is longer than
MARGIN, SPACE = 60_000_000, 10_000  # µs by which a server's first fence is ahead of the clock, and of the last one
WORTH, FRONT = 2**20, 2**53  # places that a point of priority is worth; before all of them
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


class Lanes:
    def __init__(self) -> None:
        self.wall = self.now = self.uptime = self.last = self.noted = BEGINNING
        self.away, self.gap = 0, GAP
        self.sequence = self.fronts = 0
        self.fence, self.begins, self.micros = 0, True, 0
        self.jobs: dict[str, Job] = {}
        self.alias: dict[str, str] = {}
        self.paused: set[str] = set()
        self.limits: dict[str, int] = {}
        self.queues: dict[str, dict[str, list[str]]] = defaultdict(dict)
        self.ready: dict[str, float] = {}
        self.locks: dict[tuple[str, int], tuple[str, int]] = {}
        self.turns: dict[str, tuple[int, int]] = {}  # of locks: the fence that wakes the waiter, and until when
        self.counts: Counter[str] = Counter()
        self.kinds: set[str] = set()
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
        """Those that were started, by id, then those that wait, in order."""
        inside = [job for job in self.jobs.values() if key in job.keys and job.lined]
        started = sorted((job for job in inside if job.state != "waiting"), key=lambda job: job.id)
        return started + sorted((job for job in inside if job.state == "waiting"), key=lambda job: job.order)

    def limit(self, key: str) -> int:
        return self.limits.get(key, 1)

    def may_start(self, job: Job) -> bool:
        """In each of its lanes it is among the first n; an exclusive one runs alone, and nobody passes it."""
        for key in job.keys:
            line = self.line(key)
            place = line.index(job)
            if key in self.paused or place >= self.limit(key):
                return False
            if place and (job.alone or any(other.alone for other in line[:place])):
                return False
        return True

    def position(self, job: Job | None, key: str) -> int:
        line = self.line(key)
        return line.index(job) if job in line else -1

    def busy(self, keys: tuple[str, ...], alone: bool = False) -> str:
        """The first of these lines at whose end one more would wait; "" = none."""
        for key in keys:
            line = self.line(key)
            heavy = bool(line) and (alone or any(job.alone for job in line))
            if heavy or key in self.paused or len(line) >= self.limit(key):
                return key
        return ""

    def waiting(self, key: str) -> int:
        return sum(job.state == "waiting" for job in self.line(key))

    # Turns

    def next_fence(self) -> int:
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

    def enter(self, job: Job, order: tuple[int, int]) -> None:
        job.state, job.order = "waiting", order
        for key in job.keys:
            self.admit(key)

    def admit(self, key: str) -> None:
        """Whoever may start becomes ready, or is granted its lock."""
        for job in self.line(key)[: self.limit(key)]:
            if job.state == "waiting" and self.may_start(job):
                if job.place:
                    job.state = "ready"
                    self.put(job)
                elif self.silent(job):
                    self.leave(job, "failed")
                    return
                else:
                    waits = job.id != self.asking
                    self.acquire(job, job.token, min(job.ttl, SILENT) if waits else job.ttl)
                    if waits:
                        self.turns[job.id] = (job.fence, self.wall + job.ttl)

    def silent(self, job: Job) -> bool:
        """A waiter that does not ask any more."""
        return self.uptime - job.seen > SILENT

    def free_slot(self, key: str) -> int | None:
        others = self.limit(key) - 1
        slots = [1, *(2 + (self.now + i) % others for i in range(others))]
        return next((slot for slot in slots if (key, slot) not in self.locks), None)

    def beyond(self, key: str) -> int:
        """The first free slot beyond those of the limit, which was lowered below its holders."""
        slot = self.limit(key) + 1
        while (key, slot) in self.locks:
            slot += 1
        return slot

    def acquire(self, job: Job, token: str, ttl: int) -> None:
        """It is taken: a new token, a new fence, the full ttl."""
        slots = []
        for key in job.keys:
            slot = self.free_slot(key)
            assert slot, f"{job.id} was taken, and {key} is locked: {self.locks}"
            self.locks[key, slot] = (token, self.now + ttl)
            slots.append(slot)
        job.slots = tuple(slots)
        job.state, job.token, job.fence = "running", token, self.next_fence()
        job.attempt += 1
        job.started, job.lease = self.now, self.uptime + ttl
        job.taken = self.now if job.taken is None else job.taken

    def unlock(self, job: Job) -> None:
        for key, slot in zip(job.keys, job.slots, strict=False):
            if job.token and self.locks.get((key, slot), ("", 0))[0] == job.token:
                del self.locks[key, slot]

    # Ready lists: of each class the groups in turns, of each group its jobs in order

    def put(self, job: Job, at_head: bool = False) -> None:
        """By priority, of which each point is worth so many places; before all these who was started already."""
        assert job.place
        groups = self.queues[job.place.kind]
        self.know(job.place.kind)
        self.sequence += 1
        self.ready[job.id] = self.sequence - (FRONT if at_head else WORTH * job.priority)
        if job.group in groups:
            groups[job.group].append(job.id)
            groups[job.group].sort(key=lambda name: (self.ready[name], name))
        elif at_head:
            self.queues[job.place.kind] = {job.group: [job.id], **groups}
        else:
            groups[job.group] = [job.id]

    def unqueue(self, job: Job) -> None:
        if job.state == "ready" and job.place:
            groups = self.queues[job.place.kind]
            groups[job.group].remove(job.id)
            if not groups[job.group]:
                del groups[job.group]

    def put_back(self, job: Job) -> None:
        """To be taken again, at the head: it kept the front of its lines."""
        job.state = "ready"
        self.put(job, at_head=True)

    def queued(self) -> list[str]:
        return [name for groups in self.queues.values() for queue in groups.values() for name in queue]

    # The end of a job

    def leave(self, job: Job, state: str) -> str:
        """Out of all lines; whoever stands behind goes on."""
        self.unlock(job)
        self.look_again(job)
        job.state, job.ended, job.coalesce = state, self.wall, ""
        if job.place:
            self.counts[state] += 1
        if job.tell and job.place:
            self.owed[job.id] = self.now + self.tell_after
        if job.id in self.alias.values():
            self.coalesced[job.id] = job.kept_until
        parent = self.jobs.get(job.parent)
        if parent and parent.state == "parked":
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
        if job.state == "parked":
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

    def counted(self) -> dict[str, int]:
        """What counts() must say."""
        names = ("waiting", "ready", "running", "scheduled", "retrying", "parked", "held", "rolling_back", "collected")
        found = Counter(
            "rolling_back" if job.phase == "rollback" else job.state for job in self.jobs.values() if job.place
        )
        kept = ("created", "retries", "losses", "faults", *TERMINAL)
        return {name: found[name] for name in names} | {name: self.counts[name] for name in kept}
