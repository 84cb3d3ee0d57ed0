"""The plain model: what is asked for, who is given it, and how an attempt ends."""

from typing import NamedTuple

from proof.model import rings
from proof.model.dependants import Wait
from proof.model.lanes import Node
from proof.model.quotas import Lack
from proof.model.record import Job, Terms
from proof.model.undoing import Undoing

CONFLICTS = 20
COLLECTS = "collect"


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
            return Submitted("duplicate", self.stands_at(known, job.keys), of, str(fence or ""))
        if unknown := self.unknown_cause(job):
            return Submitted("unknown", 0, unknown, "")
        if refused := self.refused(job):
            return refused
        for key in job.keys[: job.plain]:
            self.end_lapsed(key)
        if answer := self._collect(job):
            return answer
        skip, *places = ["queue"] if job.terms else when_busy.split()
        named = tuple(job.keys[int(place) - 1] for place in places) or job.keys
        looked_at = named if skip == "skip" else ()
        if busy := self.busy(looked_at):
            of = next((other.id for other in self.line(busy)), job.id)
            return Submitted("skipped", 0 if self.line(job.keys[0]) else -1, of, "")
        for other in self.jobs.values():
            if when_busy == "defer" and job.coalesce and other.lined and other.coalesce == job.coalesce:
                return self._coalesce(job, other)
        for key in job.keys:
            if room is not None and self.waiting(key) >= room:
                return Submitted("full", self.waiting(key), key, "")
        for use in job.uses:
            if room is not None and len(self.queue(use.name)) >= room:
                return Submitted("full", len(self.queue(use.name)), use.name, "")
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
        if job.terms:
            job.coalesce, job.since = COLLECTS if job.terms.most > 1 else "", self.now
        if job.terms and job.terms.idle and job.terms.most > 1:
            job.state, job.order = "collecting", order
            job.due = self._ends(job.terms, self.now)
            return Submitted("queued", -1, job.id, "")
        if job.after and self.begins_to_wait(job, order):
            return Submitted("queued", -1, job.id, "")
        if job.not_before > (self.now if job.span else self.wall):
            job.state, job.due, job.order = "scheduled", job.not_before, order
            return Submitted("queued", -1, job.id, "")
        job.order = order
        self.overtake(job)
        if self.may_start(job):
            self.admit_one(job)
        if job.state == "waiting":
            return Submitted("queued", self.stands_at(job, job.keys), job.id, "")
        outcome = "started" if job.plain or self.can_run(job) else "queued"
        return Submitted(outcome, 0, job.id, str(job.fence) if job.plain else "")

    def stands_at(self, job: Job | None, keys: tuple[str, ...]) -> int:
        """In the queue of the quota that it lacks, else in the line of the first key."""
        if job and job.lack:
            return self.queue(job.lack).index(job)
        return self.position(job, keys[0]) if keys else 0

    def refused(self, job: Job) -> Submitted | None:
        for use in job.uses:
            self.read(use.name)
            bounds = self.bounds(use.name)
            if bounds is None and not use.open:
                return Submitted("undeclared", 0, use.name, "")
            if bounds and bounds.limit and use.units > bounds.limit:
                return Submitted("too_many", bounds.limit, use.name, "")
        return None

    def can_run(self, job: Job) -> bool:
        place = job.place
        return any(place and place.kind in node.classes and place.task in node.tasks for node in self.nodes.values())

    def _coalesce(self, job: Job, other: Job) -> Submitted:
        self.alias[job.id] = other.id
        return Submitted("coalesced", self.stands_at(other, job.keys), other.id, "")

    # Collecting

    def _collect(self, job: Job) -> Submitted | None:
        """None: the call begins a collector."""
        terms, into = job.terms, self._collector(job.keys)
        if not terms or not into:
            return None
        assert into.terms
        assert into.place
        assert job.place
        if (into.place[:2], into.keys, into.terms.how) != (job.place[:2], job.keys, terms.how):
            about = (into.place.task, into.terms.how, "\n".join(into.keys), into.place.kind)
            return Submitted("other", 0, into.id, "\0".join(about))
        size = 0 if terms.how == "latest" else sum(map(len, (*into.calls, *job.calls)))
        if size > terms.bytes or terms.alike != into.terms.alike or into.called >= terms.most:
            self._close(into)
            return None
        into.calls = job.calls if terms.how == "latest" else into.calls + job.calls
        into.called, into.terms = into.called + 1, terms
        job.count_from(self.now)
        into.expires, into.span = job.expires, job.span
        self.alias[job.id] = into.id
        if into.called >= terms.most:
            self._close(into)
        elif into.state == "collecting" and into.due > self.now:
            into.due = self._ends(terms, into.since)
        return Submitted("coalesced", self.stands_at(into, job.keys), into.id, "")

    def _collector(self, keys: tuple[str, ...]) -> Job | None:
        mine = (job for job in self.jobs.values() if job.coalesce == COLLECTS and job.keys[:1] == keys[:1])
        return next(mine, None)

    def _ends(self, terms: Terms, since: int) -> int:
        quiet = self.now + terms.idle
        return quiet if terms.longest is None else min(quiet, since + terms.longest)

    def _close(self, job: Job) -> None:
        job.coalesce = ""
        if job.state == "collecting":
            self.enter(job, job.order)

    def end_lapsed(self, key: str) -> None:
        """A lock in plain code whose lease is over ends when somebody else wants it."""
        for job in self.line(key)[:1]:
            if job.plain and job.state == "running" and not self.is_locked(job):
                self.leave(job, "failed")

    def is_locked(self, job: Job) -> bool:
        return all(self.locks.get(key, ("", 0))[0] == job.token for key in job.keys)

    # Taking

    def fits(self, node: Node, name: str) -> bool:
        """The node has its task."""
        job = self.jobs[name]
        return bool(job.place and job.place.task in node.tasks and node.alive)

    def any_unfit(self) -> bool:
        """Is anything ready that some node may not run?"""
        nodes = self.nodes.values()
        return any(node.closed or not self.fits(node, name) for name in self.ready.all() for node in nodes)

    def stale(self, name: str) -> bool:
        job = self.jobs[name]
        return job.taken is None and job.expires is not None and job.expires <= (self.now if job.span else self.wall)

    def any_late(self) -> bool:
        """Then a taking that found nothing may find something when asked again: what it ended, or put off, made others
        ready.
        """
        stale = any(self.stale(job.id) for job in self.jobs.values() if job.lined)
        return stale or any(job.uses for job in self.jobs.values() if not job.over)

    def pass_over(self, job: Job) -> None:
        """A runner came upon it too late: it is not started any more."""
        self.unqueue(job)
        self.leave(job, "expired")

    def put_off(self, job: Job, lack: Lack) -> None:
        """A runner came upon it, and it lacks a quota now, though it was offered. Who came before it meanwhile is."""
        assert job.place
        self.ready.remove(job.place.kind, self.stands_in(job), job.id)
        self.take_back(job)
        job.state = "waiting" if job.taken is None else "ready"
        if job.state == "ready" or self.may_start(job):
            self.queue_up(job, lack)
        else:
            self.withdraw(job)
            for key in job.keys:
                self.admit(key)

    def next_of(self, node: Node, kind: str) -> str | None:
        """Whom a runner of this node starts next of a class, after it ended what comes too late, and put off what lacks
        a quota.
        """
        while name := self._first_of(node, kind):
            job = self.jobs[name]
            if self.stale(name):
                self.pass_over(job)
            elif lack := self.lacking(job, offering=False):
                self.put_off(job, lack)
            else:
                return name
        return None

    def _first_of(self, node: Node, kind: str) -> str | None:
        """What does not fit goes behind the others of its group, and its group behind the others."""
        groups = {group: list(queue) for group, queue in self.ready.groups(kind).items()}
        for _ in range(16):
            if not groups:
                return None
            group, queue = next(iter(groups.items()))
            name = queue.pop(0)
            if self.fits(node, name) or self.stale(name):
                return name
            del groups[group]
            groups[group] = [*queue, name]
        return None

    def take_next(self, node: Node, runner: str, token: str, ttl: int, kinds: list[str]) -> Job | None:
        """The first that may start, of these classes: which comes first of equals."""
        order = self.ready.order(node.name, kinds)
        idle = [kind for kind in kinds if not self.ready.places[kind]] if kinds[1:] else []
        for kind in order:
            if name := self.next_of(node, kind):
                job = self.take(node, runner, token, ttl, name, beside=len(kinds) > 1)
                self.ready.take_along(kind, idle)
                return job
        node.work.pop(runner, None)
        return None

    def take(self, node: Node, runner: str, token: str, ttl: int, name: str, beside: bool) -> Job:
        """It was found by `next_of`. `beside`: the node has other classes."""
        job = self.jobs[name]
        assert job.place
        crowded = len(self.ready.places[job.place.kind]) > 1 or beside
        self.ready.remove(job.place.kind, self.stands_in(job), job.id)
        self.ready.charge(job.place.kind, job.group, job.place.task, crowded)
        self.start(job, node, runner, token, ttl)
        return job

    def start(self, job: Job, node: Node, runner: str, token: str, ttl: int) -> None:
        self.take_units(job)
        self.acquire(job, token, ttl)
        assert job.place
        job.node, job.runner, job.coalesce = node.name, runner, ""
        node.work[runner] = (token, self.now + job.place.limit if job.place.limit else 0, job.id)

    # How an attempt ends

    def finish(
        self, name: str, token: str, outcome: str, delay: int = 0, bound: int | None = None, ids: tuple[str, ...] = (),
        quota: str = "", wait: Wait | None = None,
    ) -> tuple[str, str]:  # fmt: skip
        """Verdict and state. `ids`: the jobs for which it parks; `quota`: that it found exhausted, "" = all; `wait`:
        for the event for which it parks.
        """
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
        state = self.conclude(job, outcome, delay, bound, quota, wait)
        if not job.over:
            job.answered = state
        return "accepted", state

    def conclude(
        self, job: Job, outcome: str, delay: int, bound: int | None, quota: str = "", wait: Wait | None = None
    ) -> str:
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
        if wait:
            return self.await_event(job, wait)
        if outcome == "lost":
            return self.count_loss(job)
        if outcome in ("cooled_down", "conflict"):
            return self._excused(job, outcome, delay, quota)
        most = job.max_attempts if bound is None else bound
        if outcome == "raised" and job.attempts_left(most):
            return self.retry_later(job, delay)
        return self.give_up(job, "failed")

    def _excused(self, job: Job, outcome: str, delay: int, quota: str) -> str:
        """It counts as no attempt."""
        if outcome == "conflict":
            job.conflicts += 1
            if job.conflicts > CONFLICTS:
                return self.give_up(job, "failed")
            job.forgiven += 1
            return self.retry_later(job, delay)
        for use in job.uses:
            if quota in ("", use.name):
                self.cool_down(use.name, (True, self.now + delay))
        job.forgiven += 1
        return self.retry_later(job, 0)

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
        self.give_back(job)
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
            self.correct(job, seen=False)
            self.put_back(job)
            return "ready"
        return self.count_loss(job)

    def count_loss(self, job: Job) -> str:
        self.counts["losses"] += 1
        job.losses += 1
        if job.losses > job.max_losses:
            return self.give_up(job, "failed")
        self.correct(job, seen=False)
        self.put_back(job)
        return "ready"
