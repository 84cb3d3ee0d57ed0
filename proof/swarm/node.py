"""A node in threads: the library's supervisor, waiter, status file and runners, without a Celery worker around them."""

from __future__ import annotations

import json
import logging
import os
import queue
import socket
import threading
import uuid

from celery import Celery

from coordinator.core.fleet import processes
from coordinator.core.fleet.companion import Companion
from coordinator.core.fleet.nodes import About
from coordinator.core.fleet.status_file import StatusFile
from coordinator.core.lanes.client import LaneClient
from coordinator.core.maintenance.duties import Duty
from coordinator.core.runner.runner import Runner, RunnerServices, WorkerContext
from coordinator.core.store.client import Store
from coordinator.core.supervisor.__main__ import serve
from coordinator.core.supervisor.supervisor import Supervisor, SupervisorConfig
from coordinator.core.supervisor.wakes import WakeReader
from coordinator.core.version import VERSION
from coordinator.core.worker.fitness import locate
from proof.swarm import TASK, slots_of

logger = logging.getLogger(__name__)


class Maintenance(Companion):
    """The duties of maintenance as threads, once for all nodes of this process. Elsewhere each node that Redis asks for
    it starts a process, which loads the app: two seconds of a processor, too much for dozens of nodes on one machine.
    """

    def __init__(self, app: Celery) -> None:  # not the one above, which is about a process
        own = app.coordinator
        steps = {"results": own._results.step, "parked jobs": own._parked.step, "alerts": own._alerts.step}
        self._duties = [Duty(name, step) for name, step in steps.items()]
        for duty in self._duties:
            duty.start()

    def look(self, first_line: object) -> None:
        """They run."""

    def rest(self) -> None:
        """They wait for work."""

    def send(self, line: About) -> bool:
        for duty in self._duties:
            duty.wake()
        return True

    def stop(self) -> None:
        """They are for the other nodes, too."""


class Node:
    """A node of the app, with one of its tasks, from one queue. `speaks`: while it is not set, the supervisor
    stands still: no heartbeat, no renewal, no sweep.
    """

    def __init__(self, app: Celery, name: str, served: str, maintenance: Maintenance) -> None:
        self.name = name
        self.speaks = threading.Event()
        self.speaks.set()
        self._wakes: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._status = StatusFile.open()
        slots = slots_of(name)
        config = _config(app, name, served, len(slots), self._status)
        store = Store(app.coordinator.settings)
        store.connections.call_it("supervisor", name)
        self._supervisor = Supervisor(store, config, self.speaks.wait, self._wakes.put)
        context = WorkerContext(name, LaneClient(app.coordinator.store), config.incarnation, self._status)
        self._services = RunnerServices(app, context)
        self._runners = [threading.Thread(target=self._run, args=(app, context), name=slot) for slot in slots]
        self._clock = threading.Thread(target=self._serve, args=(maintenance,), name=name)

    def start(self) -> None:
        """As a worker does: its lines reach the supervisor by a pipe, whose end means that the worker is gone."""
        reading, writing = os.pipe()
        self._source, self._lines = os.fdopen(reading), os.fdopen(writing, "w")
        WakeReader(self._supervisor, self._wakes.put).start()
        for thread in (*self._runners, self._clock):
            thread.start()

    def drain(self) -> None:
        """Begin to shut down: it gets no new jobs, and those that run may end."""
        self.speaks.set()
        self._status.stops = True
        print(json.dumps({"ending": 1}), file=self._lines, flush=True)
        for _ in self._runners:
            self._wakes.put(None)

    def join(self) -> None:
        """Wait until its jobs have ended, and the supervisor has removed the node from Redis."""
        for runner in self._runners:
            runner.join()
        self._services.flush()
        self._lines.close()
        self._clock.join()
        self._status.close()

    def _serve(self, maintenance: Maintenance) -> None:
        """The supervisor's loop."""
        with self._source as source:
            serve(self._supervisor, source, maintenance)

    def _run(self, app: Celery, context: WorkerContext) -> None:
        """One slot: a runner for each wake-up."""
        while wake := self._wakes.get():
            try:
                Runner(app, context, self._services).run(wake.decode())
            except Exception:  # of the runner itself: the supervisor puts its job back
                logger.exception("a runner of %s failed", self.name)


def _config(app: Celery, name: str, served: str, capacity: int, status: StatusFile) -> SupervisorConfig:
    """What a worker tells its supervisor."""
    about: About = {
        "app": app.main, "capacity": capacity, "ordinary": 0, "load": 0, "pool": "threads", "pid": os.getpid(),
        "host": socket.gethostname(), "version": VERSION, "queue": app.conf.task_default_queue,
        "routes": json.dumps(app.coordinator._queues_of([TASK])),
    }  # fmt: skip
    return SupervisorConfig(
        node=name, incarnation=uuid.uuid4().hex, worker=processes.identity(), about=about,
        serves=[f"app {app.main}", f"queue {served}"], tasks=[TASK], app=locate(app),
        status_folder=str(status.folder), status_fd=os.dup(status.fd), wakes_fd=-1, settings={},
    )  # fmt: skip
