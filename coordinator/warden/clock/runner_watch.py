"""The clock's watch over the runners of its node: renews their leases, and stops jobs past a limit or cancelled.

Redis keeps in work:<node> which runner holds which job. The watch looks at each runner's process, identified by its pid
and birth, and at the runner's notice on the board:

    process gone                   the watch puts the job back at once
    alive                          it renews the lease, each third of the ttl
    stopped, or a zombie           it lets the lease lapse
    alive, the runner has ended    Redis lost the end of the attempt: the watch puts the job back
      or has another job
    signalled                      the process is about to end: its worker stops, or the attempt is a loss

A job that a stopping worker leaves undone is put back, and is no loss. The worker notes on the board that it stops
before it signals its processes. A signal from outside may reach all processes, and the worker last: so the watch waits
until the worker, too, has looked at its signals.

A clock that starts, or that stood still, renews every lease once, also those of stopped processes: they may have been
stopped together with it. It compares times of Redis to see that it stood still, since a machine's own clock stands
still with the machine.

To stop a job, the watch condemns the attempt and then kills the process. Once the attempt is condemned, Redis refuses
its outcome and gives its runner no other job, so that the kill cannot hit another job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from kombu.utils.json import dumps

from coordinator.errors import UnknownJob
from coordinator.fleet import processes
from coordinator.fleet.board import Board, Notice
from coordinator.jobs.backoff import delay_of_job
from coordinator.jobs.record import fields
from coordinator.jobs.spec import ErrorRecord
from coordinator.lanes.client import LaneClient
from coordinator.store.reading import number_in, text_in
from coordinator.store.times import milliseconds

logger = logging.getLogger(__name__)

_TOGETHER = 200  # leases that one step renews
_TIDY = 5.0  # seconds between two looks for places on the board that nobody has


@dataclass(frozen=True, slots=True)
class WorkEntry:
    """An entry of work:<node>: a runner holds a job with a token, until `till` (ms, as `Store.now`; 0: no limit)."""

    runner: str
    token: str
    till: int
    job_id: str

    @property
    def process(self) -> str:
        return ".".join(self.runner.split(".")[:2])


class RunnerWatch:
    """Watches the runners of one node. `worker`: the identity of its main process, where a pool of threads has all its
    runners. The watch calls `get_on` between two pieces of work, so that the node beats in time.
    """

    def __init__(
        self, lanes: LaneClient, node: str, worker: str, board: Board, get_on: Callable[[], None] = lambda: None
    ) -> None:
        self.lanes = lanes
        self.store = lanes.store
        self.settings = lanes.store.settings
        self.node = node
        self.worker = worker
        self.board = board
        self._get_on = get_on
        self.long_runs = LongRuns(self.settings.long_run)
        self._renewed: dict[str, int] = {}  # token: last renewal, in ms of the installation's clock
        self._now = self._looked = self._cleaned = 0  # in the same ms: this look, the last complete one, and cleaning
        self._signalled: dict[str, int] = {}  # token whose process a signal ended: the worker's looks then
        self._left: set[str] = set()  # the ids of jobs that were put back since the worker is gone

    def entries(self) -> list[WorkEntry]:
        """Read from Redis what the runners of this node hold. The lease of one that cannot be read lapses."""
        held = self.store.read("HGETALL", self.store.key("work", self.node))
        parts = [(runner.decode(), *text_in(value).partition(" ")[::2]) for runner, value in held.items()]
        return [
            WorkEntry(runner, token, limit, job_id)
            for runner, token, rest in parts
            for till, _, job_id in [rest.partition(" ")]
            if (limit := number_in(till)) is not None
        ]

    def step(self, now: int, hands_over: bool = False, busy: bool = True) -> None:
        """Look at each runner's process; then renew the leases that are due. `now`: ms, as `Store.now`. `hands_over`:
        the node has drained for `drain_timeout`, and other nodes take over what still runs. `busy`: False if no runner
        holds a job.
        """
        entries = self.entries() if busy else []
        stood_still = now - self._looked > milliseconds(max(self.settings.lock_ttl / 3, 2 * self.settings.sweep))
        self._now = now
        living: list[WorkEntry] = []
        tokens = {entry.token for entry in entries}
        self._signalled = {token: looks for token, looks in self._signalled.items() if token in tokens}
        for entry in entries:
            self._get_on()
            condition, notice = processes.condition(entry.process), self.board.read(entry.runner)
            if condition == "gone":
                self._put_back(entry, notice)
            elif notice.state == "failed" or (notice.state == "signalled" and self.board.stops):
                self._lose_or_stop(entry, f"its runner failed: {notice.why}")
                self.board.remove(entry.runner)
            elif notice.state == "signalled":
                continue
            elif notice.is_done(entry.token):
                self.lose(entry, "handed", "its runner has ended it, and Redis has lost that")
            elif (_is_due(entry, notice, now) and self.stop(entry)) or (hands_over and self._hand_over(entry)):
                continue
            elif condition == "alive" or stood_still:
                living.append(entry)
        if now - self._cleaned > milliseconds(_TIDY):
            self.board.clean()
            self._cleaned = now
        self._renew(living, 0 if stood_still else now)
        self._looked = now
        for entry in self.long_runs.due(living, now / 1000):
            self._get_on()
            with suppress(UnknownJob):
                job = self.lanes.job(entry.job_id)
                age = now / 1000 - (job.started.timestamp() if job.started else 0)
                logger.warning("job %s (%s) runs for %d s on %s", job.id, job.key, age, self.node)

    def reclaim(self) -> None:
        """Renew the leases of processes that went on while the node counted as dead, unless another node has the job
        by now. The node registers only after that, so that no runner here gets a job before. Redis has forgotten what
        they hold; the board says which bodies run, or have ended and could not tell it.
        """
        bodies = [(runner, one) for runner, one in self.board.notices() if one.state in ("begun", "ended")]
        held = [WorkEntry(runner, notice.token, 0, notice.job_id) for runner, notice in bodies]
        self._extend([entry for entry in held if processes.condition(entry.process) == "alive"])

    def leave(self) -> list[str]:
        """The worker is gone: kill its processes, put their jobs back, and return the ids of these jobs; called again,
        those of the calls before, too.
        """
        entries = self.entries()
        self._left |= {entry.job_id for entry in entries}
        for entry in entries:
            if entry.process != self.worker:
                processes.kill(entry.process)
            self._lose_or_stop(entry, f"the worker {self.node} is gone")
        return sorted(self._left)

    def _put_back(self, entry: WorkEntry, notice: Notice) -> None:
        """Put back a job whose process is gone. If its body had not begun, that is no loss. A signal that ended it may
        have reached the worker, too: then wait for the worker's next look.
        """
        if notice.state == "signalled":
            self._signalled.setdefault(entry.token, self.board.looks)
        if self._signalled.get(entry.token) == self.board.looks and not self.board.stops:
            return
        if notice.has_begun(entry.token):
            self._lose_or_stop(entry, f"the process {entry.process} on {self.node} is gone")
        else:
            self.lose(entry, "handed", f"the process {entry.process} on {self.node} was gone before the body began")

    def _lose_or_stop(self, entry: WorkEntry, why: str) -> None:
        """Put a job back: as a loss, or as stopped if its worker is stopping."""
        self.lose(entry, "stopped" if self.board.stops else "lost", why)

    def stop(self, entry: WorkEntry) -> bool:
        """Stop a cancelled job, or one past its time limit or lifetime. Returns False if it goes on.

        A job that shares its process with others (threads, gevent, solo) cannot be stopped. Past its lifetime Redis
        fences it off; in the other cases it keeps its lane until it returns.
        """
        (stop,) = fields(self.store, entry.job_id, "stop")
        if entry.process == self.worker:
            if stop == "expired":
                self.lose(entry, "lost", "max_lifetime is over")
            return stop == "expired"
        if self._kill(entry):
            logger.warning("job %s: stopped its process %s: %s", entry.job_id, entry.process, stop or "time limit")
            detail: ErrorRecord = {
                "type": "TimedOut",
                "module": "coordinator.timed_out",
                "message": f"went past its time_limit on {self.node}",
            }
            self.lose(entry, "lost" if stop else "timed_out", f"its process was stopped: {stop}" if stop else detail)
        return True

    def lose(self, entry: WorkEntry, how: str, detail: ErrorRecord | str) -> None:
        """Tell Redis that the process will not finish the attempt; `how`: see the step job_lose."""
        self._get_on()
        delay = milliseconds(delay_of_job(self.store, entry.job_id)) if how == "timed_out" else 0
        state = self.store.step("job_lose", entry.job_id, entry.token, how, dumps(detail), delay)
        if not state:  # the job has ended, only the entry is left
            self.store.step("work_drop", self.node, entry.runner, entry.token)
        else:
            logger.warning("job %s on %s: %s (%s), now %s", entry.job_id, self.node, how, detail, state.decode())

    def _hand_over(self, entry: WorkEntry) -> bool:
        """Give a job of a draining node to other nodes. Returns False if it may end here: a rollback, since it runs
        only once, and a job that shares its process with others.
        """
        if entry.process == self.worker or fields(self.store, entry.job_id, "phase") == ["rollback"]:
            return False
        if self._kill(entry):
            self.lose(entry, "stopped", f"handed over: {self.node} drains")
        return True

    def _kill(self, entry: WorkEntry) -> bool:
        """Condemn the attempt, then kill its process; False if the attempt is over. A condemned runner can only end its
        process, but one that failed just before may be gone, and its process at other work: the board tells.
        """
        if not self.store.step("runner_condemn", self.node, entry.runner, entry.token, entry.job_id):
            return False
        if not self.board.read(entry.runner).is_done(entry.token):
            processes.kill(entry.process)
        return True

    def _renew(self, living: list[WorkEntry], first: int) -> None:
        """Renew each lease older than a sixth of the ttl. `first`: when a lease not seen before counts as renewed."""
        before, sixth = self._renewed, milliseconds(self.settings.lock_ttl / 6)
        self._renewed = {entry.token: before.get(entry.token, first) for entry in living}
        self._extend([entry for entry in living if self._now - self._renewed[entry.token] >= sixth])

    def _extend(self, due: list[WorkEntry]) -> None:
        for start in range(0, len(due), _TOGETHER):
            self._get_on()
            chunk = due[start : start + _TOGETHER]
            pairs = [part for entry in chunk for part in (entry.job_id, entry.token)]
            replies = self.store.step("lease_renew", milliseconds(self.settings.lock_ttl), *pairs)
            for entry, reply in zip(chunk, replies, strict=True):
                self._renewed[entry.token] = self._now
                if not reply:
                    logger.info("lease of job %s on %s ended before it was renewed", entry.job_id, self.node)


def _is_due(entry: WorkEntry, notice: Notice, now: int) -> bool:
    """True if the job is to be stopped (`till` is 1), or past its time limit by both counts: Redis counts from the
    claim, the board from the start of the body, and the later limit holds.
    """
    return entry.till == 1 or (0 < entry.till < now and notice.is_overdue(entry.token))


class LongRuns:
    """Picks runs to warn about: each at the age of `first` seconds, and again whenever its age has doubled."""

    def __init__(self, first: float) -> None:
        self._first = first
        self._seen: dict[str, tuple[float, float]] = {}

    def due(self, living: list[WorkEntry], now: float) -> list[WorkEntry]:
        """The entries to warn about now; `now` in seconds."""
        self._seen = {entry.token: self._seen.get(entry.token, (now, now + self._first)) for entry in living}
        due = [entry for entry in living if now >= self._seen[entry.token][1]]
        for entry in due:
            began = self._seen[entry.token][0]
            self._seen[entry.token] = (began, now + (now - began))
        return due
