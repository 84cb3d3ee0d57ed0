"""The warden: one companion process per node. It does all that needs a clock.

    beat      says that the node lives, and its load; rings overdue bells again
    watch     renews the leases of runners whose processes live; a gone one's job is put back at once
    limits    stops the process whose job is past its limit, or was cancelled: condemned first, so that the kill hits
              nothing else
    sweep     lapsed leases, retries that are due, dead nodes, idle room (any node's warden; one at a time does it);
              then sorters that are due
    notices   results and links that nobody sent
    companions  what extensions add (the inbox)

It is spawned by the worker, hears from it through its standard input, one JSON object a line, and ends with it: at the
end of that input the worker is gone, so what its processes still hold is taken from them and put back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import psutil
from kombu.utils.json import dumps

from coordinator import processes
from coordinator.attempt import delay_of_job
from coordinator.doorbells import Doorbells
from coordinator.errors import CoordinatorError, StoreRefused, StoreUnavailable, UnknownJob
from coordinator.lanes import Lanes
from coordinator.nodes import Nodes
from coordinator.notices import Notices, log_double_fault
from coordinator.parked import Parked
from coordinator.sorter import STEP
from coordinator.store import Store, milliseconds

logger = logging.getLogger(__name__)

BRAKE = 0.95  # of CPU or memory: who uses more comes behind those that are less than half full


class Companion(Protocol):
    """Something that lives beside the warden in its process: started once, stopped at the end, never raises."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Charge:
    """What the warden is told of its node at the start."""

    node: str
    incarnation: str
    worker: str
    about: dict[str, Any]
    serves: list[str]
    tasks: list[str]


@dataclass(frozen=True, slots=True)
class Held:
    """An entry of work:<node>: this runner holds this token of this job; `till` (server ms): 0 = no limit."""

    runner: str
    token: str
    till: int
    job_id: str

    @property
    def process(self) -> str:
        return ".".join(self.runner.split(".")[:2])


class Warden:
    def __init__(
        self, store: Store, lanes: Lanes, notices: Notices, parked: Parked, doorbells: Doorbells, charge: Charge
    ) -> None:
        self.store = store
        self.settings = store.settings
        self.lanes = lanes
        self.nodes = Nodes(store)
        self.notices = notices
        self.parked = parked
        self.long_runs = LongRuns(self.settings.long_run)
        self.doorbells = doorbells
        self.charge = charge
        self.changed: dict[str, Any] = {}
        self.registered = False  # else it is unknown, dead, or another living worker has its name
        self._refused = False
        self._renewed: dict[str, float] = {}
        self._living: list[Held] = []  # at the last look
        self._next_load = 0.0
        self._drained = False  # for too long: what still runs is handed over

    def hear(self, line: Mapping[str, Any]) -> None:
        """What the worker says: fields of the node that changed, or a job's id to cancel."""
        told = dict(line)
        if job_id := told.pop("cancel", None):
            try:
                self.lanes.cancel(job_id, why="revoked", by="celery")
            except CoordinatorError as error:
                logger.info("revoke of %s: %s", job_id, error)
        self.changed.update(told)
        self.charge.about.update(told)

    def step(self) -> None:
        """One look at everything. Whatever goes wrong ends the look, not the warden."""
        try:
            self.beat()
            if self.registered:
                self.watch()
                self.sweep()
                self.notices.step()
                self.parked.step()
        except (StoreUnavailable, StoreRefused) as error:
            logger.warning("warden of %s: %s", self.charge.node, error)
        except Exception:
            logger.exception("warden of %s", self.charge.node)

    def beat(self) -> None:
        charge = self.charge
        if not self.registered:
            done, rung = self.nodes.register(charge.node, charge.incarnation, charge.about, charge.serves, charge.tasks)
            if not done and not self._refused:
                logger.error("another living worker is named %s: this one takes no work", charge.node)
            self.registered, self._refused = done, not done
            self.lanes.ring_all(rung)
            return
        if time.monotonic() >= self._next_load:
            self._next_load = time.monotonic() + self.settings.heartbeat
            load, memory = psutil.cpu_percent() / 100, psutil.virtual_memory().percent / 100
            self.changed |= {
                "load": round(load, 3),
                "memory": round(memory, 3),
                "braked": int(max(load, memory) > BRAKE),
            }
        beat = self.nodes.beat(charge.node, charge.incarnation, self.changed)
        self.changed = {}
        if beat is None:
            logger.warning("node %s was declared dead; registering again", charge.node)
            self._reclaim()
            self.registered = False
            return self.beat()
        self._drained = beat.drains is not None and beat.drains > self.settings.drain_timeout
        for bell in beat.bells:
            self.doorbells.ring(charge.node, bell)

    def held(self) -> list[Held]:
        key = self.store.key("work", self.charge.node)
        found = self.store.call(lambda: self.store.client.hgetall(key))
        entries = []
        for runner, value in found.items():
            token, till, job_id = value.decode().split(" ", 2)
            entries.append(Held(runner.decode(), token, int(till), job_id))
        return entries

    def watch(self) -> None:
        """Look at each runner's process; then renew what is due."""
        now = self._server_ms()
        living: list[Held] = []
        for held in self.held():
            condition = processes.condition(held.process)
            if condition == "gone":
                self._lose(held, "lost", f"the process {held.process} on {self.charge.node} is gone")
            elif (held.till and held.till < now and self._stop(held)) or (self._drained and self._hand_over(held)):
                continue
            elif condition == "alive":
                living.append(held)
        self._living = living
        self._renew(living)
        for held in self.long_runs.due(living, now / 1000):
            job = self.lanes.job(held.job_id)
            age = now / 1000 - (job.started.timestamp() if job.started else 0)
            logger.warning("job %s (%s) runs for %d s on %s", job.id, job.key, age, self.charge.node)

    def _renew(self, living: list[Held]) -> None:
        now, third = time.monotonic(), self.settings.lock_ttl / 3
        self._renewed = {held.token: self._renewed.get(held.token, now) for held in living}
        self._extend([held for held in living if now - self._renewed[held.token] >= third / 2])

    def _extend(self, due: list[Held]) -> None:
        for start in range(0, len(due), 200):
            chunk = due[start : start + 200]
            pairs = [part for held in chunk for part in (held.job_id, held.token)]
            replies = self.store.run("lease_renew", milliseconds(self.settings.lock_ttl), *pairs)
            for held, reply in zip(chunk, replies, strict=True):
                self._renewed[held.token] = time.monotonic()
                if not reply:
                    logger.info("lease of job %s on %s ended before it was renewed", held.job_id, self.charge.node)

    def _reclaim(self) -> None:
        """What its processes went on with is theirs again where nobody else was given it: before anybody here is."""
        self._extend([held for held in self._living if processes.condition(held.process) == "alive"])

    def _stop(self, held: Held) -> bool:
        """Past its time limit, its lifetime, or cancelled; False: it goes on.

        Where the job shares its process with others (threads, gevent, solo) it cannot be stopped: past its lifetime it
        is fenced off, else it keeps the lane until it returns.
        """
        record = self.store.key("job", held.job_id)
        stop = self.store.call(lambda: self.store.client.hget(record, "stop"))
        if held.process == self.charge.worker:
            if stop == b"expired":
                self._lose(held, "lost", "max_lifetime is over")
            return bool(stop == b"expired")
        if self.store.run("runner_condemn", self.charge.node, held.runner, held.token, held.job_id) != 1:
            return True
        processes.kill(held.process)
        why = stop.decode() if stop else "time limit"
        logger.warning("job %s: stopped its process %s: %s", held.job_id, held.process, why)
        detail = {"type": "TimedOut", "module": "coordinator.errors", "message": "went past its time_limit"}
        self._lose(held, "timed_out", detail)
        return True

    def _hand_over(self, held: Held) -> bool:
        """Its node drains, and it took too long: another node goes on with it. A rollback, which runs once, may end;
        so may what shares its process with others.
        """
        if held.process == self.charge.worker or self.lanes.job(held.job_id).state == "rolling_back":
            return False
        if self.store.run("runner_condemn", self.charge.node, held.runner, held.token, held.job_id) == 1:
            processes.kill(held.process)
            self._lose(held, "handed", f"handed over: {self.charge.node} drains")
        return True

    def _lose(self, held: Held, how: str, detail: Any) -> None:
        delay = milliseconds(delay_of_job(self.lanes, held.job_id)) if how == "timed_out" else 0
        state, rung = self.store.run("job_lose", held.job_id, held.token, how, dumps(detail), delay)
        if not state:  # it ended meanwhile; only the entry is left
            self.store.run("work_drop", self.charge.node, held.runner, held.token)
        else:
            logger.warning("job %s on %s: %s (%s), now %s", held.job_id, self.charge.node, how, detail, state.decode())
            self._look_for_fault(held.job_id)
        self.lanes.ring_all(rung)

    def _look_for_fault(self, job_id: str) -> None:
        """A rollback that was lost or stopped has failed: nobody else can say so."""
        with suppress(UnknownJob):
            job = self.lanes.job(job_id)
            if job.rollback == "failed":
                log_double_fault(job.id, job.key, job.error, job.fault)

    def sweep(self) -> None:
        interval, ttl = milliseconds(self.settings.sweep * 0.9), milliseconds(self.settings.lock_ttl)
        _, rung, lost, gone, due = self.store.run("sweep", interval, ttl, milliseconds(self.settings.gap))
        self.lanes.ring_all(rung)
        for job_id in lost:
            logger.warning("job %s: its lease ended", job_id.decode())
            self._look_for_fault(job_id.decode())
        for node in gone:
            logger.warning("node %s is dead", node.decode())
        self.flush(due)

    def flush(self, due: int) -> None:
        """Sorters that are due. For half a sweep at most, since leases are to be renewed; the next look goes on."""
        until = time.monotonic() + self.settings.sweep / 2
        while due and time.monotonic() < until:
            due, rung = self.store.run("sorter_flush", STEP)
            self.lanes.ring_all(rung)

    def leave(self) -> None:
        """The worker is gone: stop what its processes still do, put it back, sign off."""
        for held in self.held():
            if held.process != self.charge.worker:
                processes.kill(held.process)
            self._lose(held, "lost", f"the worker {self.charge.node} is gone")
        self.lanes.ring_all(self.nodes.leave(self.charge.node, self.charge.incarnation))

    def _server_ms(self) -> int:
        whole, micro = self.store.call(lambda: self.store.client.time())
        return int(whole * 1000 + micro // 1000)


class LongRuns:
    """Whose run is seen at its `first` age (s), and again each time that doubles."""

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
