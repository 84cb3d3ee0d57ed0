"""The clock, a process beside each worker: it does all of a node that goes by time, and never waits for anything else.

    beat      says that the node lives, and its load; rings overdue bells again
    watch     looks after the runners of the node (watch.py): leases, limits, processes that are gone
    sweep     any clock, one at a time: lapsed leases, retries that are due, dead and idle nodes, sorters

It talks to the coordinator's Redis alone. It imports neither Celery nor the app: no result backend, no broker, no
callback of a user and no import can hold it up. All that may wait is done by the errands, another process.

The worker spawns the clock and tells it, through its standard input, what changes: one JSON object a line. At the end
of that input the worker is gone. Then the clock kills the worker's processes, puts their jobs back, and ends.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from coordinator.clock.watch import Watch, look_for_fault
from coordinator.errors import CoordinatorError, SettingsError, StoreRefused, StoreUnavailable
from coordinator.fleet.board import Board
from coordinator.fleet.nodes import About, Nodes
from coordinator.fleet.run_times import Times, read
from coordinator.lanes.lanes import Lanes
from coordinator.lanes.sorter import STEP
from coordinator.store.client import Store
from coordinator.store.times import milliseconds
from coordinator.store.values import Json

logger = logging.getLogger(__name__)

_BELLS = 64
BRAKE = 0.95  # share of CPU or memory in use: a node that uses more comes behind all that are less than half full


@dataclass(frozen=True, slots=True)
class Charge:
    """The worker tells its clock this at the start.

    `app`: the place where its errands find the Celery app; `board`: the folder of its board; `settings`: as `Settings`
    takes them.
    """

    node: str
    incarnation: str
    worker: str
    about: About
    serves: list[str]
    tasks: list[str]
    app: str
    board: str
    settings: dict[str, Json]


class Clock:
    def __init__(self, store: Store, charge: Charge) -> None:
        self.store = store
        self.settings = store.settings
        self.lanes = Lanes(store)
        self.nodes = Nodes(store)
        self.board = Board(Path(charge.board))
        self.watch = Watch(self.lanes, charge.node, charge.worker, self.board, self._get_on)
        self.charge = charge
        self.changed: About = {}
        self.registered = False  # else it is unknown, dead, or another living worker has its name
        self.errands_due = False  # the last beat said so
        self._refused = False
        self._next_load = self._beaten = 0.0  # monotonic
        self._times: Times = {}  # as they were told
        self._busy, self._swept = True, -1  # as the last beat said; a node that was registered just now looks itself
        self._drained = False  # for too long: what still runs is handed over

    def hear(self, line: About) -> None:
        """Take a line of the worker: fields of the node that changed, a job's id to cancel or to revoke, or that its
        bells are to be rung again.
        """
        told = dict(line)
        if told.pop("rung", None):
            self._ring_again()
        for name, act in (("cancel", self.lanes.cancel), ("revoke", self.lanes.revoke)):
            if job_id := told.pop(name, None):
                try:
                    act(str(job_id), why="revoked", by="celery")
                except CoordinatorError as error:
                    logger.info("revoke of %s: %s", job_id, error)
        self.changed.update(told)
        self.charge.about.update(told)

    def step(self) -> None:
        """One look at everything. An error ends the look, not the clock."""
        try:
            self.beat()
            if self.registered:
                self.watch.step(self._drained, self._busy)
                self._get_on()
                if not 0 <= self._swept < milliseconds(self.settings.sweep * 0.9):
                    self.sweep()
        except (StoreUnavailable, StoreRefused) as error:
            logger.warning("clock of %s: %s", self.charge.node, error)
        except SettingsError as error:
            self._refuse(f"{error}; until then it takes no work")
        except Exception:
            logger.exception("clock of %s", self.charge.node)

    def _get_on(self) -> None:
        """Redis is slow, or there is much to do: the node says again that it lives, before all of it is done."""
        if self.registered and time.monotonic() - self._beaten > self.settings.node_ttl / 4:
            self._beaten = time.monotonic()  # a beat that finds the node dead extends leases, and comes here again
            self.beat()

    def _refuse(self, why: str) -> None:
        """The node cannot be registered; it is said once."""
        if not self._refused:
            logger.error("%s", why)
        self._refused = True

    def beat(self) -> None:
        charge = self.charge
        if not self.registered:
            done = self.nodes.register(charge.node, charge.incarnation, charge.about, charge.serves, charge.tasks)
            if not done:
                self._refuse(f"another living worker is named {charge.node}: this one takes no work")
                return
            self.registered, self._refused = True, False
            self._busy, self._swept = True, -1
            return
        times: Times | None = None
        if time.monotonic() >= self._next_load:
            times = self._read_times()
            self._next_load = time.monotonic() + self.settings.heartbeat
            load, memory = psutil.cpu_percent() / 100, psutil.virtual_memory().percent / 100
            self.changed |= {
                "load": round(load, 3),
                "memory": round(memory, 3),
                "braked": int(max(load, memory) > BRAKE),
            }
        beat = self.nodes.beat(charge.node, charge.incarnation, self.changed, times)
        self.changed, self._beaten = {}, time.monotonic()
        if beat is None:
            logger.warning("node %s was declared dead; registering again", charge.node)
            self.watch.reclaim()
            self.registered = False
            return self.beat()
        self.errands_due, self._busy, self._swept = beat.errands, beat.busy, beat.swept
        self._drained = beat.drains is not None and beat.drains > self.settings.drain_timeout
        for bell in beat.bells:
            if self.store.ringer:
                self.store.ringer(charge.node, bell)

    def _ring_again(self) -> None:
        """All that are on their way. Else those that a broker has lost wait for as long again as they have waited."""
        try:
            bells: list[bytes] = self.store.read("ZRANGE", self.store.key("rung", self.charge.node), 0, _BELLS - 1)
        except CoordinatorError as error:
            logger.info("bells of %s are rung later: %s", self.charge.node, error)
            return
        for bell in bells:
            if self.store.ringer:
                self.store.ringer(self.charge.node, bell.decode())

    def _read_times(self) -> Times | None:
        """How long the node's jobs run; None where there is nothing to tell, and was not."""
        before, self._times = self._times, read(self.board.folder)
        return self._times if self._times or before else None

    def sweep(self) -> None:
        interval, until = milliseconds(self.settings.sweep * 0.9), time.monotonic() + self.settings.sweep / 2
        while True:
            _, lost, gone, due, more = self.store.step("sweep", interval, milliseconds(self.settings.gap))
            for job_id in lost:
                self._get_on()
                logger.warning("job %s: its lease ended", job_id.decode())
                look_for_fault(self.lanes, job_id.decode())
            for node in gone:
                logger.warning("node %s is dead", node.decode())
            if not more or time.monotonic() > until:
                break
            interval = 0
        self.flush(due)

    def flush(self, due: int) -> None:
        """Flush the sorters that are due, for half a sweep at most: leases are to be renewed. The next look goes on."""
        until = time.monotonic() + self.settings.sweep / 2
        while due and time.monotonic() < until:
            due = self.store.step("sorter_flush", STEP)

    def leave(self) -> None:
        """The worker is gone: stop what its processes still do, put it back, sign off."""
        self.watch.leave()
        self.nodes.leave(self.charge.node, self.charge.incarnation)
