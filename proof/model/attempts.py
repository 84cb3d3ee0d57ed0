"""The plain model: what is asked for, who is given it, and how an attempt ends."""

from typing import NamedTuple

from proof.model import rings
from proof.model.lanes import Node
from proof.model.record import Job
from proof.model.undoing import Undoing

CONFLICTS = 20


class Submitted(NamedTuple):
    outcome: str
    position: int
    of: str
    fence: str


class Attempts(Undoing):
    def submit(self, job: Job, when_busy: str, room: int | None = None) -> Submitted:
        self.asking = job.id
        answer = self._submit(job, when_busy, room)
        self.asking = ""
        return answer

    def _submit(self, job: Job, when_busy: str, room: int | None) -> Submitted:
        if job.id in self.jobs or job.id in self.alias:
            known = self.job(job.id)
            of = self.alias.get(job.id, job.id)
            fence = known.fence if known and job.id in self.jobs and not self.faded(known) else 0
            return Submitted("duplicate", self.position(known, job.keys[0]), of, str(fence or ""))
        if job.plain:
            self.end_lapsed(job.keys[0])
        skip, *places = when_busy.split()
        named = tuple(job.keys[int(place) - 1] for place in places) or job.keys
        looked_at = named if skip == "skip" else ()
        if busy := self.busy(looked_at, job.alone):
            of = next((other.id for other in self.line(busy)), job.id)
            return Submitted("skipped", 0 if self.line(job.keys[0]) else -1, of, "")
        for other in self.jobs.values():
            if when_busy == "defer" and job.coalesce and other.lined and other.coalesce == job.coalesce:
                return self._coalesce(job, other)
        for key in job.keys:
            if room is not None and self.waiting(key) >= room:
                return Submitted("full", self.waiting(key), key, "")
        if when_busy == "replace":
            job.replaces = True
            self.replace(job.keys)  # type: ignore[attr-defined]  # it is an operator's act
        return self._enter(job)

    def _enter(self, job: Job) -> Submitted:
        self.jobs[job.id] = job
        job.count_from(self.now)
        order = self.next_order(job.priority)
        job.seen = self.uptime
        if job.place:
            self.know(job.place.kind)
            self.counts["created"] += 1
        if job.not_before > (self.now if job.span else self.wall):
            job.state, job.due, job.order = "scheduled", job.not_before, order
            return Submitted("queued", -1, job.id, "")
        self.enter(job, order)
        if job.state == "waiting":
            return Submitted("queued", self.position(job, job.keys[0]), job.id, "")
        outcome = "started" if job.plain or self._can_run(job) else "queued"
        return Submitted(outcome, 0, job.id, str(job.fence) if job.plain else "")

    def _can_run(self, job: Job) -> bool:
        place = job.place
        return any(place and place.kind in node.classes and place.task in node.tasks for node in self.nodes.values())

    def _coalesce(self, job: Job, other: Job) -> Submitted:
        known, more = other.unite, job.unite
        other.unite = None if known is None or more is None else known | more
        self.alias[job.id] = other.id
        return Submitted("coalesced", self.position(other, job.keys[0]), other.id, "")

    def end_lapsed(self, key: str) -> None:
        """A lock in plain code whose lease is over ends when somebody else wants it."""
        for job in self.line(key)[: self.limit(key)]:
            if job.plain and job.state == "running" and not self.is_locked(job):
                self.leave(job, "failed")

    def is_locked(self, job: Job) -> bool:
        places = zip(job.keys, job.slots, strict=True)
        return all(self.locks.get(place, ("", 0))[0] == job.token for place in places)

    # Taking

    def fits(self, node: Node, name: str) -> bool:
        """The node has its task, and its locks are free (another may hold them since a limit was lowered)."""
        job = self.jobs[name]
        known = job.place and job.place.task in node.tasks and node.alive
        return bool(known and all(self.free_slot(key) for key in job.keys))

    def any_unfit(self) -> bool:
        """Is anything ready that some node may not run?"""
        nodes = self.nodes.values()
        return any(node.closed or not self.fits(node, name) for name in self.queued() for node in nodes)

    def stale(self, name: str) -> bool:
        job = self.jobs[name]
        return job.taken is None and job.expires is not None and job.expires <= (self.now if job.span else self.wall)

    def any_stale(self) -> bool:
        """Then a taking that found nothing may find something when asked again: what it ended made others ready."""
        return any(self.stale(job.id) for job in self.jobs.values() if job.lined)

    def pass_over(self, name: str) -> None:
        """A runner came upon it too late: it is not started any more. Its group had its turn."""
        job = self.jobs[name]
        assert self.stale(name), f"{name} was ended by a taking"
        self.turn(job)
        self.unqueue(job)
        self.leave(job, "expired")

    def turn(self, job: Job) -> None:
        """The others are before its group now."""
        assert job.place
        groups = self.queues[job.place.kind]
        groups[job.group] = groups.pop(job.group)

    def next_of(self, node: Node, kind: str) -> str | None:
        """Groups in turns; of each its first that fits."""
        groups = {group: list(queue) for group, queue in self.queues[kind].items()}
        for _ in range(16):
            if not groups:
                return None
            group, queue = next(iter(groups.items()))
            name = queue.pop(0)
            if self.fits(node, name):
                return name
            del groups[group]
            groups[group] = [*queue, name]
        return None

    def take(self, node: Node, runner: str, token: str, ttl: int, given: str | None, late: set[str]) -> Job | None:
        """`given`: whom the script gave; that is one of those it may give, and the first of its class that fits.

        late: who became ready, or had a class that was new, while it looked; they may have been missed, and have a bell
        of their own.
        """
        if given is None:
            left = [self.next_of(node, kind) for kind in node.classes]
            left = [name for name in left if name and name not in late]
            assert not left, f"{node.name} was given nothing, and {left} are ready"
            node.work.pop(runner, None)
            return None
        job = self.jobs[given]
        assert job.place
        assert not self.stale(given), f"{given} is started though its time to start is over"
        assert job.place.kind in node.classes, f"{node.name} does not serve {given}"
        first = self.next_of(node, job.place.kind)
        assert first == given, f"{given} was given before {first}"
        self.turn(job)
        self.unqueue(job)
        self.start(job, node, runner, token, ttl)
        return job

    def start(self, job: Job, node: Node, runner: str, token: str, ttl: int) -> None:
        self.acquire(job, token, ttl)
        assert job.place
        job.node, job.runner, job.coalesce = node.name, runner, ""
        node.work[runner] = (token, self.now + job.place.limit if job.place.limit else 0, job.id)

    # How an attempt ends

    def finish(
        self, name: str, token: str, outcome: str, delay: int = 0, bound: int | None = None, ids: tuple[str, ...] = ()
    ) -> tuple[str, str]:
        """Verdict and state. `ids`: the jobs for which it parks."""
        job = self.jobs.get(name)
        if not job or token not in (job.token, job.last):
            return ("condemned" if self.condemned.get(token, 0) > self.wall else "lost"), ""
        if job.condemned == token:
            return "condemned", ""
        if job.token != token:
            return "accepted", job.answered
        if job.over:
            return "accepted", job.state
        if outcome == "parked" and not job.stop and rings.ring(self, name, ids):
            return "deadlock", ""
        job.waits_for = ids
        if job.state == "ready":
            self.unqueue(job)
            job.losses -= 1
        state = self.conclude(job, outcome, delay, bound)
        if not job.over:
            job.answered = state
        return "accepted", state

    def conclude(self, job: Job, outcome: str, delay: int, bound: int | None) -> str:
        if job.phase == "rollback":
            if outcome == "parked":
                return self.park(job)
            if outcome == "step":
                return self.undo_next(job)
            if outcome != "succeeded":
                return self.give_up(job, "failed")
            self.undone(job, "done")
            return self.settle(job, job.ends)
        if job.stop:
            return self.give_up(job, job.stop)
        if outcome in ("succeeded", "ignored"):
            job.tell = job.tell and outcome != "ignored"
            return self.leave(job, "succeeded")
        if outcome == "step":
            return self.advance(job)
        if outcome == "parked":
            return self.park(job)
        if outcome == "lost":
            return self.count_loss(job)
        if outcome == "conflict":
            job.conflicts += 1
            if job.conflicts > CONFLICTS:
                return self.give_up(job, "failed")
            job.forgiven += 1
            return self.retry_later(job, delay)
        most = job.max_attempts if bound is None else bound
        if outcome == "raised" and job.attempts_left(most):
            return self.retry_later(job, delay)
        return self.give_up(job, "failed")

    def retry_later(self, job: Job, delay: int) -> str:
        self.counts["retries"] += 1
        self.let_go(job)
        if delay > 0:
            job.state, job.due = "retrying", self.now + delay
        else:
            self.put_back(job)
        return "retrying"

    def advance(self, job: Job) -> str:
        self.let_go(job)
        job.step += 1
        job.forgiven += 1
        job.place = job.steps[job.step]
        self.know(job.place.kind)
        self.put_back(job)
        return "ready"

    def settle(self, job: Job, state: str) -> str:
        """The end, unless an operator is to decide."""
        if not job.hold or state in ("cancelled", "expired"):
            return self.leave(job, state)
        self.look_again(job)
        self.let_go(job)
        job.ends, job.state = state, "held"
        return "held"

    def give_up(self, job: Job, state: str) -> str:
        """It will not succeed: a started one is rolled back, once, in its place."""
        if job.phase == "rollback":
            self.undone(job, "failed")
            self.counts["faults"] += 1
            return self.settle(job, "double_fault") if job.ends == "rolled_back" else self.leave(job, job.ends)
        if not job.undo or job.taken is None or job.phase == "undone":
            return self.settle(job, state)
        self.look_again(job)
        self.let_go(job)
        job.phase, job.ends = "rollback", "rolled_back" if state == "failed" else state
        job.own = job.place
        self.undo(job, 0)
        return "rolling_back"

    def lose(self, job: Job, how: str, delay: int = 0) -> str:
        """Its process is gone, or was stopped past its time limit."""
        if node := self.nodes.get(job.node):
            node.work.pop(job.runner, None)
        self.unlock(job)
        if job.plain:
            return self.leave(job, "failed")
        if job.phase == "rollback" and how != "handed":
            return self.give_up(job, "failed")
        if job.stop and job.phase != "rollback":
            return self.give_up(job, job.stop)
        if how == "timed_out":
            left = job.attempts_left(job.max_attempts)
            return self.retry_later(job, delay) if left else self.give_up(job, "failed")
        if how in ("handed", "stopped"):
            job.attempt, job.token = job.attempt - 1, ""
            self.put_back(job)
            return "ready"
        return self.count_loss(job)

    def count_loss(self, job: Job) -> str:
        self.counts["losses"] += 1
        job.losses += 1
        if job.losses > job.max_losses:
            return self.give_up(job, "failed")
        self.put_back(job)
        return "ready"
