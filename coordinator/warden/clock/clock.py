"""The clock, a process beside each worker: does everything of its node that depends on time.

    beat      tells Redis that the node lives, and its load; wakes the worker where no runner has answered for 2 s
    watch     looks after the runners of the node (runner_watch.py): leases, limits, processes that are gone
    sweep     one clock at a time, of any node: lapsed leases, retries that are due, dead and idle nodes, sorters

The clock talks only to the coordinator's Redis, and imports neither Celery nor the app: no result backend, broker, user
callback or import can delay it. Whatever may block belongs to the errands, another process.

The worker spawns the clock and writes changes to its standard input, one JSON object a line. The end of that input
means that the worker is gone: the clock kills the worker's processes, puts their jobs back, and ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from coordinator.errors import CoordinatorError, SettingsError, StoreRefused, StoreUnavailable
from coordinator.fleet.board import Board
from coordinator.fleet.measures import Batch, Reader
from coordinator.fleet.nodes import About, Nodes
from coordinator.fleet.run_times import Times
from coordinator.lanes.client import LaneClient
from coordinator.sorters.sorter import STEP
from coordinator.store.client import Store
from coordinator.store.times import milliseconds
from coordinator.store.values import Json
from coordinator.warden.clock.runner_watch import RunnerWatch

logger = logging.getLogger(__name__)

_WAKES = 64
_LINGERS = 60.0  # seconds for which the errands stay after their last work: KEPT in functions/steps/node.lua
_LONGEST = 200  # characters of a runner's failure, as its node shows it
BRAKE = 0.95  # share of CPU or memory in use, above which a node gets jobs only after all that are less than half full


@dataclass(frozen=True, slots=True)
class Charge:
    """The first line that a worker sends to its clock.

    `app`: where the errands import the Celery app from; `board`, `memory`: the folder and the descriptor of its board;
    `wakes`: the descriptor of the socket for its wake-ups; `settings`: all attributes of `Settings`, which the worker
    has checked; the clock loads no pydantic. `plugins`: the app has some, which need the errands all the time.
    """

    node: str
    incarnation: str
    worker: str
    about: About
    serves: list[str]
    tasks: list[str]
    app: str
    board: str
    memory: int
    wakes: int
    settings: dict[str, Json]
    plugins: bool = False


class Clock:
    """The clock of one node. `sign` sends the worker a sign of life, `wake` the name of a wake-up."""

    def __init__(
        self, store: Store, charge: Charge, sign: Callable[[], object] = bytes, wake: Callable[[bytes], object] = bytes
    ) -> None:
        self.sign, self._wake = sign, wake
        self.store = store
        self.settings = store.settings
        self.lanes = LaneClient(store)
        self.nodes = Nodes(store)
        self.board = Board(Path(charge.board), charge.memory)
        self.watch = RunnerWatch(self.lanes, charge.node, charge.worker, self.board, self._get_on)
        self.charge = charge
        self.changed: About = {}
        self.registered = False  # False: unknown, dead, or another living worker has the name
        self.errands_due, self._errands_until = False, 0.0  # by the last beat; monotonic
        self._refused = False
        self._next_load = self._beaten = 0.0  # monotonic
        self._times: Times = {}  # as Redis has them
        self._measures = Reader(self.board.folder)
        self.busy, self._swept, self._now = True, -1, 0  # by the last beat
        self._drained = False  # drains for longer than drain_timeout: what still runs is handed over

    def receive(self, line: About) -> None:
        """Act on a worker's line: changed fields of the node, a job to cancel or revoke, or that it may have lost
        wake-ups.
        """
        changes = dict(line)
        if changes.pop("woken", None):
            self._wake_again()
        for name, act in (("cancel", self.lanes.cancel), ("revoke", self.lanes.revoke)):
            if job_id := changes.pop(name, None):
                try:
                    act(str(job_id), why="revoked", by="celery")
                except CoordinatorError as error:
                    logger.info("revoke of %s: %s", job_id, error)
        self.changed.update(changes)
        self.charge.about.update(changes)

    @property
    def needs_errands(self) -> bool:
        return self.charge.plugins or time.monotonic() < self._errands_until

    def step(self) -> None:
        """Beat, watch and sweep once. An error ends this step, not the clock."""
        try:
            self.beat()
            if self.registered:
                now = self._now
                self.watch.step(now, self._drained, self.busy)
                self._get_on()
                if not 0 <= self._swept < milliseconds(self.settings.sweep * 0.9):
                    self.sweep(now + milliseconds(min(self.settings.lock_ttl / 2, self.settings.node_ttl)))
        except (StoreUnavailable, StoreRefused) as error:
            logger.warning("clock of %s: %s", self.charge.node, error)
        except SettingsError as error:
            self._refuse(f"{error}; until then it takes no work")
        except Exception:
            logger.exception("clock of %s", self.charge.node)

    def _get_on(self) -> None:
        """Give signs of life between two pieces of work, since Redis may be slow or the work long."""
        self.sign()
        if self.registered and time.monotonic() - self._beaten > self.settings.node_ttl / 4:
            self._beaten = time.monotonic()  # a beat that finds the node dead extends leases, which calls this again
            self.beat()

    def _refuse(self, why: str) -> None:
        """Log why the node cannot be registered, only the first time."""
        if not self._refused:
            logger.error("%s", why)
        self._refused = True

    def beat(self) -> None:
        """Register the node, or renew its registration and read what Redis wants of it. One that was declared dead is
        registered again, once: where Redis forgets it again, as one that evicts does, the next step tries.
        """
        if not self._beat():
            logger.warning("node %s was declared dead; registering again", self.charge.node)
            self.registered = False  # first: `reclaim` calls `_get_on`
            self.watch.reclaim()
            self.registered = self._beat() and self.registered

    def _beat(self) -> bool:
        """False where Redis does not know the node any more."""
        charge = self.charge
        if not self.registered:
            done = self.nodes.register(charge.node, charge.incarnation, charge.about, charge.serves, charge.tasks)
            if not done:
                self._refuse(f"another living worker is named {charge.node}: this one takes no work")
                return True
            self.registered, self._refused = True, False
        times: Times | None = None
        batch: Batch | None = None
        if time.monotonic() >= self._next_load:
            batch = self._measures.batch()
            times = self._measures.times if self._measures.times or self._times else None
            self._times = self._measures.times
            self._next_load = time.monotonic() + self.settings.heartbeat
            self._look_around()
        beat = self.nodes.beat(charge.node, charge.incarnation, self.changed, times, batch)
        self.changed, self._beaten = {}, time.monotonic()
        self.board.heard = self._beaten
        if batch and beat:
            self._measures.sent()
        if beat is None:
            return False
        self.errands_due, self.busy, self._swept, self._now = beat.errands, beat.busy, beat.swept, beat.now
        if beat.errands:
            self._errands_until = time.monotonic() + _LINGERS
        self._drained = beat.drains is not None and beat.drains > self.settings.drain_timeout
        for wake in beat.wakes:
            self._wake(wake)
        return True

    def _look_around(self) -> None:
        """Note what is new of the host and of the runners."""
        load, memory = psutil.cpu_percent() / 100, psutil.virtual_memory().percent / 100
        self.changed |= {"load": round(load, 3), "memory": round(memory, 3), "braked": int(max(load, memory) > BRAKE)}
        if self._now:
            since = self._now / 1000 - self._beaten  # the installation's clock at the zero of the monotonic one
            self.changed["skew"] = round(time.time() - time.monotonic() - since, 1)
        failure = self.board.failure()[:_LONGEST]
        if failure != self.charge.about.get("failure", ""):
            self.changed["failure"] = self.charge.about["failure"] = failure

    def _wake_again(self) -> None:
        """Send the worker all wake-ups that are on their way to it, which else would take two seconds."""
        try:
            wakes: list[bytes] = self.store.read("ZRANGE", self.store.key("rung", self.charge.node), 0, _WAKES - 1)
        except CoordinatorError as error:
            logger.info("wake-ups of %s come later: %s", self.charge.node, error)
            return
        for wake in wakes:
            self._wake(wake)

    def sweep(self, deadline: int) -> None:
        """Do what is due. Redis refuses a sweep after the deadline (ms, as `Store.now`): this clock may have stood
        still since its last look at the leases of its node, and must renew them first.
        """
        interval, until = milliseconds(self.settings.sweep * 0.9), time.monotonic() + self.settings.sweep / 2
        while True:
            gap = milliseconds(self.settings.gap)
            _, lost, gone, due, more = self.store.step("sweep", interval, gap, deadline)
            for job_id in lost:
                self._get_on()
                logger.warning("job %s: its lease ended", job_id.decode())
            for node in gone:
                logger.warning("node %s is dead", node.decode())
            if not more or time.monotonic() > until:
                break
            interval = 0
        self.flush(due)

    def flush(self, due: int) -> None:
        """Flush the sorters that are due, for half a sweep at most, so that leases are renewed in time. The next sweep
        continues.
        """
        until = time.monotonic() + self.settings.sweep / 2
        while due and time.monotonic() < until:
            due = self.store.step("sorter_flush", STEP)

    def leave(self) -> None:
        """Sign off after the worker is gone: stop its processes and put their jobs back, unless the node's name belongs
        to another worker.
        """
        self.charge.about["ending"] = 1
        self._next_load = 0.0  # what its last jobs took goes with this beat
        self.beat()
        if self.registered:
            held = self.watch.leave()
            self.nodes.leave(self.charge.node, self.charge.incarnation, None if self.board.stops else held)
