"""The clock's watch over the runners of its node: it renews their leases, and ends what is past a limit or cancelled.

Redis keeps in work:<node> which runner holds which job. The watch looks at each runner's process, told apart for good
by its pid and birth, and at the runner's notice on the board:

    gone     its job is put back at once
    alive    its lease is renewed, each third of the ttl
    stopped, a zombie   its lease is left to lapse
    alive, but the runner is over or has gone on    Redis has lost its end: the job is put back

A job past its time limit or its lifetime, and a cancelled one, loses its process. The watch condemns the attempt
first: from then on Redis refuses its outcome and gives its runner nothing more, so that the kill hits nothing else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from kombu.utils.json import dumps

from coordinator.errors import UnknownJob
from coordinator.fleet import processes
from coordinator.fleet.board import Board, Notice
from coordinator.jobs.backoff import delay_of_job
from coordinator.jobs.faults import log_double_fault
from coordinator.jobs.record import fields
from coordinator.jobs.spec import Cause
from coordinator.lanes.lanes import Lanes
from coordinator.store.times import milliseconds

logger = logging.getLogger(__name__)

_TOGETHER = 200  # leases that one step renews


@dataclass(frozen=True, slots=True)
class Held:
    """An entry of work:<node>: this runner holds this token of this job; `till` (ms, as `Store.now`): 0 = no limit."""

    runner: str
    token: str
    till: int
    job_id: str

    @property
    def process(self) -> str:
        return ".".join(self.runner.split(".")[:2])


class Watch:
    """`worker`: the identity of the node's main process. A pool of threads has all its runners there.

    The watch calls `get_on` between two pieces of work: the node says that it lives, also where Redis is slow.
    """

    def __init__(
        self, lanes: Lanes, node: str, worker: str, board: Board, get_on: Callable[[], None] = lambda: None
    ) -> None:
        self.lanes = lanes
        self.store = lanes.store
        self.settings = lanes.store.settings
        self.node = node
        self.worker = worker
        self.board = board
        self._get_on = get_on
        self.long_runs = LongRuns(self.settings.long_run)
        self._renewed: dict[str, float] | None = None  # None before the first look: it renews all
        self._living: list[Held] = []  # at the last look

    def held(self) -> list[Held]:
        found = self.store.read("HGETALL", self.store.key("work", self.node))
        entries = []
        for runner, value in found.items():
            token, till, job_id = value.decode().split(" ", 2)
            entries.append(Held(runner.decode(), token, int(till), job_id))
        return entries

    def step(self, hands_over: bool, busy: bool = True) -> None:
        """Look at each runner's process; then renew the leases that are due. `hands_over`: the node drains, and has
        done so for `drain_timeout`: another node goes on with what still runs. `busy`: a runner holds something.
        """
        every = self.held() if busy else []
        now = self.store.now() if every else 0
        living: list[Held] = []
        for held in every:
            self._get_on()
            condition, notice = processes.condition(held.process), self.board.read(held.runner)
            if condition == "gone":
                self._put_back(held, notice)
            elif notice.state == "failed":
                self.lose(held, "lost", f"its runner failed: {notice.why}")
                self.board.remove(held.runner)
            elif notice.is_done(held.token):
                self.lose(held, "handed", "its runner has ended it, and Redis has lost that")
            elif (_is_due(held, notice, now) and self.stop(held)) or (hands_over and self._hand_over(held)):
                continue
            elif condition == "alive":
                living.append(held)
        self.board.clean()
        self._living = living
        self._renew(living)
        for held in self.long_runs.due(living, now / 1000):
            self._get_on()
            job = self.lanes.job(held.job_id)
            age = now / 1000 - (job.started.timestamp() if job.started else 0)
            logger.warning("job %s (%s) runs for %d s on %s", job.id, job.key, age, self.node)

    def reclaim(self) -> None:
        """Renew what the node's processes went on with while it was taken for dead, unless somebody else was given
        it. The node registers after that, so nobody here is given a job before.
        """
        self._extend([held for held in self._living if processes.condition(held.process) == "alive"])

    def leave(self) -> None:
        """The worker is gone: kill its processes, and put their jobs back."""
        for held in self.held():
            if held.process != self.worker:
                processes.kill(held.process)
            self.lose(held, "lost", f"the worker {self.node} is gone")

    def _put_back(self, held: Held, notice: Notice) -> None:
        """Its process is gone. A body that had not begun was no attempt, and is no loss."""
        if notice.has_begun(held.token):
            self.lose(held, "lost", f"the process {held.process} on {self.node} is gone")
        else:
            self.lose(held, "handed", f"the process {held.process} on {self.node} was gone before the body began")

    def stop(self, held: Held) -> bool:
        """Stop a job past its time limit or its lifetime, or a cancelled one. False: it goes on.

        A job that shares its process with others (threads, gevent, solo) cannot be stopped: past its lifetime Redis
        fences it off, else it keeps its lane until it returns.
        """
        (stop,) = fields(self.store, held.job_id, "stop")
        if held.process == self.worker:
            if stop == "expired":
                self.lose(held, "lost", "max_lifetime is over")
            return stop == "expired"
        if self._kill(held):
            logger.warning("job %s: stopped its process %s: %s", held.job_id, held.process, stop or "time limit")
            detail: Cause = {"type": "TimedOut", "module": "coordinator.errors", "message": "went past its time_limit"}
            self.lose(held, "lost" if stop else "timed_out", f"its process was stopped: {stop}" if stop else detail)
        return True

    def lose(self, held: Held, how: str, detail: Cause | str) -> None:
        """Tell Redis that the process will not finish the attempt; `how` as of the step job_lose."""
        self._get_on()
        delay = milliseconds(delay_of_job(self.store, held.job_id)) if how == "timed_out" else 0
        state = self.store.step("job_lose", held.job_id, held.token, how, dumps(detail), delay)
        if not state:  # it ended meanwhile; only the entry is left
            self.store.step("work_drop", self.node, held.runner, held.token)
        else:
            logger.warning("job %s on %s: %s (%s), now %s", held.job_id, self.node, how, detail, state.decode())
            look_for_fault(self.lanes, held.job_id)

    def _hand_over(self, held: Held) -> bool:
        """A rollback runs once, so it may end here; so may a job that shares its process with others."""
        if held.process == self.worker or self.lanes.job(held.job_id).state == "rolling_back":
            return False
        if self._kill(held):
            self.lose(held, "handed", f"handed over: {self.node} drains")
        return True

    def _kill(self, held: Held) -> bool:
        """Condemn the attempt, then kill its process. From the first on its runner can do nothing but end its process,
        unless it failed by itself: so look again, the process may do something else by now.
        """
        if not self.store.step("runner_condemn", self.node, held.runner, held.token, held.job_id):
            return False
        if not self.board.read(held.runner).is_done(held.token):
            processes.kill(held.process)
        return True

    def _renew(self, living: list[Held]) -> None:
        now, third = time.monotonic(), self.settings.lock_ttl / 3
        before, first = (self._renewed or {}), 0.0 if self._renewed is None else now
        renewed = self._renewed = {held.token: before.get(held.token, first) for held in living}
        self._extend([held for held in living if now - renewed[held.token] >= third / 2])

    def _extend(self, due: list[Held]) -> None:
        for start in range(0, len(due), _TOGETHER):
            self._get_on()
            chunk = due[start : start + _TOGETHER]
            pairs = [part for held in chunk for part in (held.job_id, held.token)]
            replies = self.store.step("lease_renew", milliseconds(self.settings.lock_ttl), *pairs)
            for held, reply in zip(chunk, replies, strict=True):
                if self._renewed is not None:
                    self._renewed[held.token] = time.monotonic()
                if not reply:
                    logger.info("lease of job %s on %s ended before it was renewed", held.job_id, self.node)


def _is_due(held: Held, notice: Notice, now: int) -> bool:
    """Is it to be stopped (`till` is 1), or past its time limit? Redis counts that from the claim, the board from the
    start of the body: the later one is right.
    """
    return held.till == 1 or (0 < held.till < now and notice.is_overdue(held.token))


def look_for_fault(lanes: Lanes, job_id: str) -> None:
    """Log a rollback that was lost or stopped: it has failed, and its process cannot say so."""
    with suppress(UnknownJob):
        job = lanes.job(job_id)
        if job.rollback == "failed":
            log_double_fault(job.id, job.key, job.error, job.fault)


class LongRuns:
    """Finds each run at its `first` age (s), and again each time that its age has doubled."""

    def __init__(self, first: float) -> None:
        self._first = first
        self._seen: dict[str, tuple[float, float]] = {}

    def due(self, living: list[Held], now: float) -> list[Held]:
        """Those to be warned about; `now` in seconds."""
        self._seen = {held.token: self._seen.get(held.token, (now, now + self._first)) for held in living}
        found = [held for held in living if now >= self._seen[held.token][1]]
        for held in found:
            began = self._seen[held.token][0]
            self._seen[held.token] = (began, now + (now - began))
        return found
