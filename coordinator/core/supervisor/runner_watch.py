"""Watches the runners of a node, in its supervisor: renews their leases, and stops jobs that are cancelled or past a
limit.

The hash work:<node> in Redis has the job that each runner holds. The watch checks each runner's process, identified by
pid and start time, and the runner's row in the status file:

    process gone, or a zombie      the job is put back into its lanes at once
    process alive                  the lease is renewed, each third of the ttl
    process stopped (SIGSTOP)      the lease is not renewed, and ends
    process alive, but the runner  Redis has lost the outcome of the attempt: the job is put back
      has ended or has another job
    runner signalled               the process is about to end, because its worker stops or by another signal

A job that a stopping worker leaves unfinished is put back, and does not count as a loss. The worker writes to the
status file that it stops before it signals its processes. A signal from outside may reach the processes of the pool
before the worker: so the watch waits until the worker has checked its own signals, too.

After its start, and after a time in which it was stopped, the supervisor renews every lease once, also those of stopped
processes: they may have been stopped together with it. It notices such a time by the clock in Redis, since the clock of
the machine may have been stopped, too.

To stop a job, the watch first marks the attempt in Redis as condemned, and then kills the process. Redis refuses the
outcome of a condemned attempt, and gives the runner no other job, so that the kill cannot hit another job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from kombu.utils.json import dumps

from coordinator.core.fleet import processes
from coordinator.core.fleet.status_file import RunnerStatus, StatusFile
from coordinator.core.jobs.backoff import delay_of_job
from coordinator.core.jobs.record import fields
from coordinator.core.jobs.spec import ErrorRecord
from coordinator.core.lanes.client import LaneClient
from coordinator.core.store.reading import number_in, text_in
from coordinator.core.store.steps import job_lose, lease_renew, runner_condemn, work_drop
from coordinator.core.store.times import milliseconds
from coordinator.errors import UnknownJob

logger = logging.getLogger(__name__)

_TOGETHER = 200  # the most leases renewed in one request to Redis
_TIDY = 5.0  # seconds between two searches of the status file for rows of dead processes


@dataclass(frozen=True, slots=True)
class WorkEntry:
    """An entry of the hash work:<node>: the job that a runner holds, and the token of its claim. `till`: when the time
    limit of the job ends, in ms by `Store.now`; 0: it has none; 1: the job is to be stopped now.
    """

    runner: str
    token: str
    till: int
    job_id: str

    @property
    def process(self) -> str:
        return ".".join(self.runner.split(".")[:2])


class RunnerWatch:
    """Watches the runners of one node. `worker`: the identity (see `processes.identity`) of the worker's main process,
    in which the runners of a thread, gevent or solo pool run. `heartbeat`: is called between two requests to Redis, so
    that long work does not delay the node's heartbeat.
    """

    def __init__(
        self,
        lanes: LaneClient,
        node: str,
        worker: str,
        status_file: StatusFile,
        heartbeat: Callable[[], None] = lambda: None,
    ) -> None:
        self.lanes = lanes
        self.store = lanes.store
        self.settings = lanes.store.settings
        self.node = node
        self.worker = worker
        self.status_file = status_file
        self._heartbeat = heartbeat
        self.long_runs = LongRuns(self.settings.long_run)
        self._renewed: dict[str, int] = {}  # token: when its lease was last renewed, in ms by `Store.now`
        # In the same ms: this step, the last complete step, the last search for rows of dead processes.
        self._now = self._last_step = self._cleaned = 0
        self._signalled: dict[str, int] = {}  # token whose process a signal ended: `status_file.looks` at that time
        self._left: set[str] = set()  # the ids of the jobs put back since the worker is gone

    def entries(self) -> list[WorkEntry]:
        """Read from Redis which jobs the runners of this node hold. An entry of a wrong form is left out, so that its
        lease ends.
        """
        held = self.store.read("HGETALL", self.store.key("work", self.node))
        parts = [(runner.decode(), *text_in(value).partition(" ")[::2]) for runner, value in held.items()]
        return [
            WorkEntry(runner, token, limit, job_id)
            for runner, token, rest in parts
            for till, _, job_id in [rest.partition(" ")]
            if (limit := number_in(till)) is not None
        ]

    def step(self, now: int, hands_over: bool = False, busy: bool = True) -> None:
        """Check the process of each runner, and act on those that ended or are past a limit; then renew the leases that
        are due. `now`: ms, by `Store.now`. `hands_over`: True once the node has drained for longer than the setting
        `drain_timeout`: its running jobs are stopped, and put back for other nodes. `busy`: False if no runner holds a
        job.
        """
        entries = self.entries() if busy else []
        stood_still = now - self._last_step > milliseconds(max(self.settings.lock_ttl / 3, 2 * self.settings.sweep))
        self._now = now
        living: list[WorkEntry] = []
        tokens = {entry.token for entry in entries}
        self._signalled = {token: looks for token, looks in self._signalled.items() if token in tokens}
        for entry in entries:
            self._heartbeat()
            condition, status = processes.condition(entry.process), self.status_file.read(entry.runner)
            if condition == "gone":
                self._put_back(entry, status)
            elif status.state == "failed" or (status.state == "signalled" and self.status_file.stops):
                self._lose_or_stop(entry, f"its runner failed: {status.why}")
                self.status_file.remove(entry.runner)
            elif status.state == "signalled":
                continue
            elif status.is_done(entry.token):
                self.lose(entry, "handed", "the runner has finished the attempt, and Redis has lost its outcome")
            elif (_is_due(entry, status, now) and self.stop(entry)) or (hands_over and self._hand_over(entry)):
                continue
            elif condition == "alive" or stood_still:
                living.append(entry)
        if now - self._cleaned > milliseconds(_TIDY):
            self.status_file.clean()
            self._cleaned = now
        self._renew(living, 0 if stood_still else now)
        self._last_step = now
        for entry in self.long_runs.due(living, now / 1000):
            self._heartbeat()
            with suppress(UnknownJob):
                job = self.lanes.job(entry.job_id)
                age = now / 1000 - (job.started.timestamp() if job.started else 0)
                logger.warning("job %s (%s) runs for %d s on %s", job.id, job.key, age, self.node)

    def reclaim(self) -> None:
        """Renew the leases of this node's running jobs after the node was declared dead by mistake, except jobs that
        another node has claimed by now. The jobs are read from the status file, since Redis has forgotten which jobs
        the runners hold. Call this before the node registers again, so that its runners cannot claim other jobs first.
        """
        bodies = [
            (runner, status) for runner, status in self.status_file.statuses() if status.state in ("begun", "ended")
        ]
        held = [WorkEntry(runner, status.token, 0, status.job_id) for runner, status in bodies]
        self._extend([entry for entry in held if processes.condition(entry.process) == "alive"])

    def leave(self) -> list[str]:
        """After the worker is gone, kill its processes and put their jobs back into the lanes. Returns the ids of all
        jobs put back so far, also by earlier calls that ended with an error.
        """
        entries = self.entries()
        self._left |= {entry.job_id for entry in entries}
        for entry in entries:
            if entry.process != self.worker:
                processes.kill(entry.process)
            self._lose_or_stop(entry, f"the worker {self.node} is gone")
        return sorted(self._left)

    def _put_back(self, entry: WorkEntry, status: RunnerStatus) -> None:
        """Put back a job whose process is gone; it counts as a loss only if the body of its task had begun. If a signal
        ended the process, do nothing until the worker has checked its own signals, since it may be stopping, too.
        """
        if status.state == "signalled":
            self._signalled.setdefault(entry.token, self.status_file.looks)
        if self._signalled.get(entry.token) == self.status_file.looks and not self.status_file.stops:
            return
        if status.has_begun(entry.token):
            self._lose_or_stop(entry, f"the process {entry.process} on {self.node} is gone")
        else:
            self.lose(entry, "handed", f"the process {entry.process} on {self.node} was gone before the task began")

    def _lose_or_stop(self, entry: WorkEntry, why: str) -> None:
        """Put a job back into its lanes: as stopped if its worker is stopping, else as a loss. `why`: the reason."""
        self.lose(entry, "stopped" if self.status_file.stops else "lost", why)

    def stop(self, entry: WorkEntry) -> bool:
        """Stop a job that is cancelled, or past its time limit or lifetime, by killing its process. Returns False if it
        goes on.

        A job that shares its process with others (pools threads, gevent, solo) cannot be stopped. Past its lifetime,
        Redis gives its lanes to other jobs and refuses its outcome; before that it keeps them until its task returns.
        """
        (stop,) = fields(self.store, entry.job_id, "stop")
        if entry.process == self.worker:
            if stop == "expired":
                self.lose(entry, "lost", "max_lifetime is over")
            return stop == "expired"
        if self._kill(entry):
            logger.warning("job %s: killed its process %s: %s", entry.job_id, entry.process, stop or "time limit")
            detail: ErrorRecord = {
                "type": "TimedOut",
                "module": "coordinator.timed_out",
                "message": f"went past its time_limit on {self.node}",
            }
            self.lose(entry, "lost" if stop else "timed_out", f"its process was stopped: {stop}" if stop else detail)
        return True

    def lose(self, entry: WorkEntry, how: str, detail: ErrorRecord | str) -> None:
        """Report to Redis that the attempt will not be finished by its process.

        `how`: lost (counts as a loss), stopped or handed (count as no attempt; handed: the task had not begun, or Redis
        lost the outcome) or timed_out. `detail`: the reason, or the error to record.
        """
        self._heartbeat()
        delay = milliseconds(delay_of_job(self.store, entry.job_id)) if how == "timed_out" else 0
        state = job_lose(self.store, entry.job_id, entry.token, how, dumps(detail), delay)
        if not state:  # the attempt is over in Redis, and only its entry in work:<node> is left
            work_drop(self.store, self.node, entry.runner, entry.token)
        else:
            message = "job %s: its attempt on node %s ended as %s (%s); the job is now %s"
            logger.warning(message, entry.job_id, self.node, how, detail, state)

    def _hand_over(self, entry: WorkEntry) -> bool:
        """Stop a job of a draining node, and put it back for other nodes. Returns False for a job that may end on this
        node: a rollback, since a rollback runs only once, or a job that shares its process with others.
        """
        if entry.process == self.worker or fields(self.store, entry.job_id, "phase") == ["rollback"]:
            return False
        if self._kill(entry):
            self.lose(entry, "stopped", f"handed over: {self.node} drains")
        return True

    def _kill(self, entry: WorkEntry) -> bool:
        """Mark an attempt in Redis as condemned, then kill its process; False if the attempt is already over. If the
        runner has ended since, as by an error, its process may run another task by now, and is not killed.
        """
        if not runner_condemn(self.store, self.node, entry.runner, entry.token, entry.job_id):
            return False
        if not self.status_file.read(entry.runner).is_done(entry.token):
            processes.kill(entry.process)
        return True

    def _renew(self, living: list[WorkEntry], first: int) -> None:
        """Renew each lease of `living` that was last renewed more than a sixth of the ttl ago. `first`: the time (ms,
        by `Store.now`) that counts as the last renewal of a lease that is new to this supervisor; 0: renew it now.
        """
        before, sixth = self._renewed, milliseconds(self.settings.lock_ttl / 6)
        self._renewed = {entry.token: before.get(entry.token, first) for entry in living}
        self._extend([entry for entry in living if self._now - self._renewed[entry.token] >= sixth])

    def _extend(self, due: list[WorkEntry]) -> None:
        for start in range(0, len(due), _TOGETHER):
            self._heartbeat()
            chunk = due[start : start + _TOGETHER]
            pairs = [part for entry in chunk for part in (entry.job_id, entry.token)]
            replies = lease_renew(self.store, milliseconds(self.settings.lock_ttl), *pairs)
            for entry, reply in zip(chunk, replies, strict=True):
                self._renewed[entry.token] = self._now
                if not reply:
                    logger.info("job %s: its lease on node %s ended before it was renewed", entry.job_id, self.node)


def _is_due(entry: WorkEntry, status: RunnerStatus, now: int) -> bool:
    """True if Redis asks to stop the job (`till` is 1), or if the job is past its time limit both as counted in Redis,
    from the claim, and as counted in the status file, from the start of the task's body. `now`: ms, by `Store.now`.
    """
    return entry.till == 1 or (0 < entry.till < now and status.is_overdue(entry.token))


class LongRuns:
    """Picks the running jobs of which the supervisor warns: each when it has run for `first` seconds, and again each
    time that its age has doubled.
    """

    def __init__(self, first: float) -> None:
        self._first = first
        self._seen: dict[str, tuple[float, float]] = {}

    def due(self, living: list[WorkEntry], now: float) -> list[WorkEntry]:
        """Return those entries of `living` to warn about now, and drop the ages of all that are not in `living`. `now`:
        seconds.
        """
        self._seen = {entry.token: self._seen.get(entry.token, (now, now + self._first)) for entry in living}
        due = [entry for entry in living if now >= self._seen[entry.token][1]]
        for entry in due:
            began = self._seen[entry.token][0]
            self._seen[entry.token] = (began, now + (now - began))
        return due
