"""What the coordinator adds to a Celery worker: its own queue, the warden beside it, `revoke` that means cancel, and a
consumer that survives the loss of its broker.

The worker's event loop never calls Redis for us: a timer looks once a second whether the warden lives, writes what
changed into its standard input and reads from a pipe whether the node is registered, without ever blocking. The warden
is a new process, not a fork: no thread of ours lives in a process that forks.

A worker consumes its own queue unless another living worker has its name: bells are for that one.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import uuid
from contextlib import closing, suppress
from typing import Any, ClassVar

from celery import Celery, bootsteps, signals
from celery.worker import consumer, control, state

from coordinator import processes
from coordinator.doorbells import TASK, queue_of
from coordinator.errors import CoordinatorError, SettingsError
from coordinator.hands import note
from coordinator.nodes import Nodes
from coordinator.orders import CANVAS
from coordinator.version import VERSION

logger = logging.getLogger(__name__)

CONSUMER = f"{__name__}:Consumer"
_NOT_HOME = frozenset({"celery", "kombu", "coordinator", "flower"})  # they only refer to the app


class Consumer(consumer.Consumer):
    """Outlives its Redis broker whichever of its connections notices the loss first; what it holds is noted there."""

    def connect(self) -> Any:
        connection = super().connect()
        note(self.app, connection, self.hostname)
        return connection

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Closing a channel first reads what its BRPOP brings. On a lost connection that raises, and leaves the channel
        open for a later close that restores unacknowledged messages over a transport that is gone by then: an
        AttributeError, which ends the worker. Read here, the first close proper happens while the transport exists.
        """
        tasks = self.task_consumer
        if tasks is not None and tasks.channel is not None and self.connection.transport.driver_type == "redis":
            self.connection.maybe_close_channel(tasks.channel)
        super().on_connection_error_after_connected(exc)


class WardenStep(bootsteps.StartStopStep):
    """Starts, feeds and restarts the warden. A class of its own per app: `bind`."""

    requires = ("celery.worker.consumer:Tasks",)
    coordinated: ClassVar[Celery]

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        super().__init__(parent, **kwargs)
        self._process: subprocess.Popen[bytes] | None = None
        self._ear = -1
        self._timer: Any = None
        self._told: dict[str, Any] = {}
        self._draining = False
        signals.worker_shutting_down.connect(self._drain, weak=False)

    def start(self, c: Any) -> None:
        c.coordinator_step = self
        self._look(c)
        self._timer = c.timer.call_repeatedly(1.0, self._look, (c,))

    def stop(self, c: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()

    shutdown = stop

    def _look(self, c: Any) -> None:
        """Never raises: an exception here would end the worker."""
        try:
            if self._process is None or self._process.poll() is not None:
                if self._process is not None:
                    logger.error("the warden ended (exit %s); starting it again", self._process.returncode)
                self._told = self._condition(c)
                self._process = self._spawn(c)
            self._hear(c)
            now = self._condition(c)
            changed = {name: value for name, value in now.items() if self._told.get(name) != value}
            if changed and self.tell(changed):
                self._told = now
        except Exception:
            logger.exception("cannot look after the warden")

    def _hear(self, c: Any) -> None:
        """Consume the own queue while this worker is the one that is registered under its name."""
        try:
            told = os.read(self._ear, 4096)
        except BlockingIOError:
            return
        own = queue_of(c.hostname).name
        if told and (told[-1:] == b"1") != c.task_consumer.consuming_from(own):
            (c.add_task_queue if told[-1:] == b"1" else c.cancel_task_queue)(own)

    def _condition(self, c: Any) -> dict[str, Any]:
        ordinary = sum(1 for request in state.reserved_requests if request.name != TASK)
        events = c.event_dispatcher is not None and c.event_dispatcher.enabled
        scaler = getattr(c.controller, "autoscaler", None)  # it grows the pool once there is more to do
        slots = scaler.max_concurrency if scaler else getattr(c.pool, "num_processes", None)
        told = {"capacity": max(1, int(slots or 1)), "ordinary": ordinary, "events": int(events)}
        return told | ({"ending": 1} if self._draining else {})

    def _spawn(self, c: Any) -> subprocess.Popen[bytes]:
        app = self.coordinated
        about = self._told | {
            "app": app.main,
            "load": 0,
            "pool": type(c.pool).__module__.rpartition(".")[2],
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": VERSION,
        }
        labels = app.coordinator.settings.labels
        queues = [name for name in app.amqp.queues.consume_from if name != queue_of(c.hostname).name]
        charge = {
            "node": c.hostname,
            "incarnation": app.coordinator.incarnation,
            "worker": processes.identity(),
            "about": about,
            "serves": [f"app {app.main}", *(f"queue {name}" for name in queues), *(f"label {name}" for name in labels)],
            "tasks": [CANVAS, *(name for name in app.tasks if not name.startswith(("celery.", "coordinator.")))],
        }
        process = self._start("-m", "coordinator.companion", locate(app))
        assert process.stdin is not None
        process.stdin.write(json.dumps(charge).encode() + b"\n")
        process.stdin.flush()
        os.set_blocking(process.stdin.fileno(), False)
        return process

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        if self._ear >= 0:
            os.close(self._ear)
        self._ear, voice = os.pipe()
        os.set_blocking(self._ear, False)
        try:
            return subprocess.Popen(
                [sys.executable, *command, str(voice)],
                stdin=subprocess.PIPE,
                pass_fds=[voice],
                start_new_session=True,
            )
        finally:
            os.close(voice)

    def tell(self, line: dict[str, Any]) -> bool:
        """One line to the warden; False when it could not be written now."""
        if self._process is None or self._process.stdin is None:
            return False
        try:
            os.write(self._process.stdin.fileno(), json.dumps(line).encode() + b"\n")
        except OSError:
            return False
        return True

    def _drain(self, **_: Any) -> None:
        """A warm shutdown began: nothing new, what runs may end."""
        self._draining = True
        self.coordinated.coordinator.close()
        self.tell({"ending": 1})


def bind(app: Celery) -> None:
    """Put the worker's part into `app`."""
    step = type("WardenStep", (WardenStep,), {"coordinated": app, "__module__": __name__})
    app.steps["consumer"].add(step)

    def begin(sender: str, instance: Any, **_: Any) -> None:
        """Before its pool is there: whoever it forks knows which worker it is of."""
        if instance.app is app:
            app.coordinator.incarnation = uuid.uuid4().hex
            app.coordinator.documents.node = sender
            queues = app.amqp.queues
            (queues.add if _is_taken(app, sender) else queues.select_add)(queue_of(sender))

    signals.celeryd_after_setup.connect(begin, weak=False, dispatch_uid=f"coordinator-queue-{id(app)}")


def _is_taken(app: Celery, node: str) -> bool:
    """Whether a living worker has this name. One that nobody can tell of is not waited for."""
    with suppress(CoordinatorError), closing(app.coordinator.store) as store:
        return Nodes(store).is_alive(node)
    return False


def locate(app: Celery) -> str:
    """Where a new process finds this app: `module:attribute`, or `path.py:attribute` when it is the main program."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _NOT_HOME:
            continue
        for attribute, value in list(vars(module).items()) if hasattr(module, "__dict__") else ():
            if value is app and not attribute.startswith("_"):
                place = getattr(module, "__file__", "") or "" if name == "__main__" else name
                spec = getattr(module, "__spec__", None) if name == "__main__" else None
                return f"{spec.name if spec else place}:{attribute}"
    raise SettingsError(f"the Celery app {app.main!r} is no attribute of any module: its warden could not find it")


_revoke = control.Panel.data["revoke"]


@control.control_command(name="revoke", variadic="task_id", signature="[id1 [id2 [... [idN]]]]")
def revoke(state: Any, task_id: Any, terminate: bool = False, signal: Any = None, **kwargs: Any) -> Any:
    """Revoke tasks by id; for the id of a job it means `cancel`."""
    step = getattr(state.consumer, "coordinator_step", None)
    for one in [task_id] if isinstance(task_id, str) else task_id or []:
        if step is not None:
            step.tell({"cancel": one})
    return _revoke(state, task_id, terminate, signal, **kwargs)
