"""The supervisor, a process beside each worker, does everything for its node that depends on time.

    beat      sends a heartbeat with the node's load to Redis; repeats wake-ups that have started no runner for 2 s
    watch     watches the runners of the node (runner_watch.py): leases, time limits, processes that are gone
    sweep     by one supervisor of the fleet at a time: ended leases, due retries, dead and idle nodes, sorters

The supervisor connects only to the coordinator's Redis, and imports neither Celery nor the app: no result backend,
broker, user callback or import can delay it. Work that may block is done by maintenance, another process.

The worker starts the supervisor and writes changes to the supervisor's standard input, one JSON object a line. The end
of that input means that the worker is gone: the supervisor kills the processes of the worker's pool, puts their jobs
back into the lanes, and ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from coordinator.core.fleet.measures import Batch, Reader
from coordinator.core.fleet.nodes import About, Nodes
from coordinator.core.fleet.run_times import Times
from coordinator.core.fleet.status_file import StatusFile
from coordinator.core.jobs.options import ORDERS_A_STEP
from coordinator.core.lanes.client import LaneClient
from coordinator.core.store.client import Store
from coordinator.core.store.steps import sorter_flush, sweep
from coordinator.core.store.times import milliseconds
from coordinator.core.store.values import Json
from coordinator.core.supervisor.runner_watch import RunnerWatch
from coordinator.errors import CoordinatorError, SettingsError, StoreRefused, StoreUnavailable

logger = logging.getLogger(__name__)

_WAKES = 64  # the most wake-ups to send again at once
_LINGERS = 60.0  # seconds for which maintenance stays after its last work: KEPT in functions/steps/node.lua
_LONGEST = 200  # characters of a runner's error in the record of its node
# The share of CPU or memory in use above which a node gets jobs only after all nodes that are less than half full.
OVERLOADED = 0.95


@dataclass(frozen=True, slots=True)
class SupervisorConfig:
    """The configuration that a worker sends to its supervisor, as the first line of standard input.

    `worker`: the identity of the worker's process; `about`: the fields of the node's record; `serves`: its app, queues
    and labels, as "<kind> <name>"; `app`: the place from which maintenance imports the Celery app; `status_folder`,
    `status_fd`: folder and file descriptor of the worker's status file; `wakes_fd`: of the socket for wake-ups;
    `settings`: all attributes of `Settings`; `plugins`: True if the app has plugins, for which maintenance always runs.
    """

    node: str
    incarnation: str
    worker: str
    about: About
    serves: list[str]
    tasks: list[str]
    app: str
    status_folder: str
    status_fd: int
    wakes_fd: int
    settings: dict[str, Json]
    plugins: bool = False


class Supervisor:
    """The supervisor of a node. `sign`: sends a sign of life to the worker; `wake`: sends it the name of a wake-up."""

    def __init__(
        self,
        store: Store,
        config: SupervisorConfig,
        sign: Callable[[], object] = bytes,
        wake: Callable[[bytes], object] = bytes,
    ) -> None:
        self.sign, self._wake = sign, wake
        self.store = store
        self.settings = store.settings
        self.lanes = LaneClient(store)
        self.nodes = Nodes(store)
        self.status_file = StatusFile(Path(config.status_folder), config.status_fd)
        self.watch = RunnerWatch(self.lanes, config.node, config.worker, self.status_file, self._heartbeat)
        self.config = config
        self.changed: About = {}
        self.registered = False  # False: not registered yet, declared dead, or another living worker has the name
        # Whether maintenance has work, by the last heartbeat; until when it stays, by time.monotonic().
        self.maintenance_due, self._maintenance_until = False, 0.0
        self._trouble = ""  # what the log has said of that which stands in the way; "": nothing does
        self._taken_since: float | None = None  # time.monotonic() since which Redis has the name as another's
        self._next_load = self._beaten = 0.0  # time.monotonic() of the next measurement, and of the last heartbeat
        self._times: Times = {}  # the run times that were last sent to Redis
        self._measures = Reader(self.status_file.folder)
        self.busy, self._swept, self._now = True, -1, 0  # from the reply to the last heartbeat: see `Beat`
        self._drained = False  # True: the node drains for longer than drain_timeout, and its running jobs are stopped

    def receive(self, line: About) -> None:
        """Act on a line that the worker sent: changed fields of the node's record for the next heartbeat, the id of a
        job to cancel (`cancel`) or to cancel unless it has begun (`revoke`), or `woken`: the worker may have lost
        wake-ups, so send them again.
        """
        changes = dict(line)
        if changes.pop("woken", None):
            self._wake_again()
        for name, act in (("cancel", self.lanes.cancel), ("revoke", self.lanes.revoke)):
            if job_id := changes.pop(name, None):
                try:
                    act(str(job_id), why="revoked", by="celery")
                except CoordinatorError as error:
                    logger.info("cannot %s job %s: %s", name, job_id, error)
        self.changed.update(changes)
        self.config.about.update(changes)

    @property
    def needs_maintenance(self) -> bool:
        return self.config.plugins or time.monotonic() < self._maintenance_until

    def step(self) -> None:
        """Send a heartbeat, watch the runners and sweep, once each if due. An error is logged and ends this step, not
        the supervisor.
        """
        try:
            self.beat()
            if self.registered:
                now = self._now
                self.watch.step(now, self._drained, self.busy)
                self._heartbeat()
                if not 0 <= self._swept < milliseconds(self.settings.sweep * 0.9):
                    self.sweep(now + milliseconds(min(self.settings.lock_ttl / 2, self.settings.node_ttl)))
            if self.registered and self._trouble:
                logger.warning("node %s: that is over: this worker takes work", self.config.node)
                self._trouble = ""
        except StoreUnavailable as error:
            self._tell(logging.WARNING, f"node {self.config.node}: the supervisor tries again: {error}")
        except StoreRefused as error:
            self._tell(logging.ERROR, f"node {self.config.node}: the supervisor tries again: {error}")
        except SettingsError as error:
            self._tell(logging.ERROR, f"{error}; until that is mended, this worker takes no jobs")
        except Exception:
            logger.exception("node %s: an error of the supervisor, which goes on", self.config.node)

    def _heartbeat(self) -> None:
        """Send the worker a sign of life, and Redis a heartbeat if the last is a quarter of `node_ttl` old. Called
        between two requests to Redis, of which a step may make many.
        """
        self.sign()
        if self.registered and time.monotonic() - self._beaten > self.settings.node_ttl / 4:
            # Set before `beat`, which renews leases if the node was declared dead, and so calls `_heartbeat` again.
            self._beaten = time.monotonic()
            self.beat()

    def _tell(self, level: int, trouble: str) -> None:
        """Log what stands in the way; again only when it changes, or after a step that went well."""
        if trouble != self._trouble:
            logger.log(level, "%s", trouble)
        self._trouble = trouble

    def _wait_for_name(self) -> None:
        """Log that another worker has the name. It may have died: that is known after `node_ttl`."""
        named, ttl = f"another living worker is named {self.config.node}", self.settings.node_ttl
        now = time.monotonic()
        self._taken_since = self._taken_since or now
        if now - self._taken_since <= ttl + self.settings.sweep:
            self._tell(logging.WARNING, f"{named}, or it died less than {ttl:g} s ago: this one waits")
        else:
            self._tell(logging.ERROR, f"{named}: this one takes no work")

    def beat(self) -> None:
        """Register the node in Redis, or send a heartbeat and act on the reply. A node that was declared dead is
        registered again. If Redis forgets it at once, as a Redis that evicts keys may, the next step tries again.
        """
        if not self._beat():
            logger.warning("node %s was declared dead; registering again", self.config.node)
            self.registered = False  # set before `reclaim`: that calls `_heartbeat`, which beats for a registered node
            self.watch.reclaim()
            self.registered = self._beat() and self.registered

    def _beat(self) -> bool:
        """Send one heartbeat, or register the node before it; False if Redis no longer has the node."""
        config = self.config
        if not self.registered:
            done = self.nodes.register(config.node, config.incarnation, config.about, config.serves, config.tasks)
            if not done:
                self._wait_for_name()
                return True
            self.registered, self._taken_since = True, None
        times: Times | None = None
        batch: Batch | None = None
        if time.monotonic() >= self._next_load:
            batch = self._measures.batch()
            times = self._measures.times if self._measures.times or self._times else None
            self._times = self._measures.times
            self._next_load = time.monotonic() + self.settings.heartbeat
            self._measure_host()
        beat = self.nodes.beat(config.node, config.incarnation, self.changed, times, batch)
        self.changed, self._beaten = {}, time.monotonic()
        self.status_file.last_answer = self._beaten  # tells a runner without answers that only its own connection fails
        if batch and beat:
            self._measures.sent()
        if beat is None:
            return False
        self.maintenance_due, self.busy, self._swept, self._now = beat.maintenance, beat.busy, beat.swept, beat.now
        if beat.maintenance:
            self._maintenance_until = time.monotonic() + _LINGERS
        self._drained = beat.drains is not None and beat.drains > self.settings.drain_timeout
        for wake in beat.wakes:
            self._wake(wake)
        return True

    def _measure_host(self) -> None:
        """Measure CPU, memory and clock of the host, and read the last error of a runner, for the next heartbeat."""
        load, memory = psutil.cpu_percent() / 100, psutil.virtual_memory().percent / 100
        overloaded = int(max(load, memory) > OVERLOADED)  # the field in Redis has an older name, `braked`
        self.changed |= {"load": round(load, 3), "memory": round(memory, 3), "braked": overloaded}
        if self._now:
            since = self._now / 1000 - self._beaten  # seconds by `Store.now` at the time when time.monotonic() was 0
            self.changed["skew"] = round(time.time() - time.monotonic() - since, 1)
        failure = self.status_file.failure()[:_LONGEST]
        if failure != self.config.about.get("failure", ""):
            self.changed["failure"] = self.config.about["failure"] = failure

    def _wake_again(self) -> None:
        """Send the worker all wake-ups that have started no runner yet. The heartbeat would do so after 2 seconds."""
        try:
            wakes: list[bytes] = self.store.read("ZRANGE", self.store.key("rung", self.config.node), 0, _WAKES - 1)
        except CoordinatorError as error:
            logger.info("wake-ups of %s come later, with a heartbeat: %s", self.config.node, error)
            return
        for wake in wakes:
            self._wake(wake)

    def sweep(self, deadline: int) -> None:
        """Do what is due for all nodes: end leases that were not renewed, start due retries, remove dead nodes, flush
        sorters. `deadline`: the time (ms, by `Store.now`) after which Redis refuses this sweep. If this supervisor was
        stopped for a while, it must first renew the leases of its own node.
        """
        interval, until = milliseconds(self.settings.sweep * 0.9), time.monotonic() + self.settings.sweep / 2
        while True:
            gap = milliseconds(self.settings.gap)
            _, lost, gone, due, more = sweep(self.store, interval, gap, deadline)
            for job_id in lost:
                self._heartbeat()
                logger.warning("job %s: its lease ended, since no supervisor renewed it", job_id.decode())
            for node in gone:
                logger.warning("node %s sent no heartbeat for too long, and is declared dead", node.decode())
            if not more or time.monotonic() > until:
                break
            interval = 0
        self.flush(due)

    def flush(self, due: int) -> None:
        """Put the jobs that due sorters hold into their lanes. `due`: how many sorters are due. Stops after half the
        setting `sweep` (seconds), so that leases are renewed in time; the next sweep continues.
        """
        until = time.monotonic() + self.settings.sweep / 2
        while due and time.monotonic() < until:
            due = sorter_flush(self.store, ORDERS_A_STEP)

    def leave(self) -> None:
        """After the worker is gone, kill its processes, put their jobs back into the lanes, and remove the node from
        Redis. Does nothing if another worker has registered under the node's name.
        """
        self.config.about["ending"] = 1
        self._next_load = 0.0  # makes this heartbeat carry the measures of the last jobs
        self.beat()
        if self.registered:
            held = self.watch.leave()
            self.nodes.leave(self.config.node, self.config.incarnation, None if self.status_file.stops else held)
