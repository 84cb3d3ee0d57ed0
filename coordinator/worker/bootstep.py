"""The coordinator adds to a Celery worker: a queue of its own, the warden beside it, a `revoke` that means cancel, and
a consumer that survives the loss of its broker.

The worker's event loop never calls Redis for us, and never blocks, but for a remote command: Celery asks its backend
then, too. Twice a second a timer looks whether the clock (the
first of the warden's two processes) lives, writes what changed into its standard input, and reads from a pipe whether
the node is registered. The clock is a new process, not a fork: no thread of ours lives in a process that forks.

A worker consumes its own queue unless another living worker has its name: then the bells are for that one.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from select import PIPE_BUF

from celery import Celery, bootsteps, signals
from celery.worker import WorkController, consumer, state
from kombu.asynchronous.timer import Entry, Timer
from kombu.connection import Connection

from coordinator.broker import leftovers
from coordinator.broker.bell_message import about_bells
from coordinator.broker.doorbells import TASK, add_queue, queue_of
from coordinator.broker.transport import is_redis
from coordinator.execution.runner import install_runner
from coordinator.execution.subresults import tell_parents
from coordinator.fleet import processes
from coordinator.fleet.board import Board
from coordinator.fleet.nodes import About
from coordinator.jobs import validation
from coordinator.jobs.chain import CANVAS
from coordinator.keyed_task.arrivals import install_arrivals, into_lanes
from coordinator.task_defaults import queues_of
from coordinator.version import VERSION
from coordinator.worker import remote_control
from coordinator.worker.fitness import check, hindrance, is_taken, locate
from coordinator.worker.listening import Listening, listen, misfit
from coordinator.worker.unacked import note

logger = logging.getLogger(__name__)

_MOST_TIMERS = 1000
_LOOK = 0.5  # seconds between two looks of a worker's timer
_RETRY = 4  # seconds at most between two looks for a broker that is away; Celery's pauses grow to thirty


class Consumer(consumer.Consumer):
    """Outlives its broker, whichever of its connections notices the loss first, and where none does. A Redis broker
    notes its messages.
    """

    coordinator_listening: Listening | None = None

    def connect(self) -> Connection:
        connection: Connection = super().connect()
        note(self.app, connection, self.hostname)
        self.coordinator_listening = listen(connection)
        return connection

    def ensure_connected(self, conn: Connection) -> Connection:
        look = partial(conn.ensure_connection, interval_max=_RETRY)
        conn.ensure_connection = look  # type: ignore[method-assign]
        connected: Connection = super().ensure_connected(conn)
        return connected

    def update_strategies(self) -> None:
        super().update_strategies()
        into_lanes(self.app, self.strategies)

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Closing a channel first reads what its BRPOP brings. On a lost connection that raises, and leaves the channel
        open for a later close that restores unacknowledged messages over a transport that is gone by then: an
        AttributeError, which ends the worker. Read here, the first close proper happens while the transport exists.
        """
        tasks = self.task_consumer
        if tasks is not None and tasks.channel is not None and is_redis(self.connection):
            self.connection.maybe_close_channel(tasks.channel)
        super().on_connection_error_after_connected(exc)


class WardenStep(bootsteps.StartStopStep):
    """Starts, feeds and restarts the clock."""

    requires = ("celery.worker.consumer:Tasks",)

    def __init__(self, parent: consumer.Consumer, **kwargs: object) -> None:
        super().__init__(parent, **kwargs)
        self.coordinated: Celery = parent.app
        self._process: subprocess.Popen[bytes] | None = None
        self._ear = -1
        self._timers: list[Entry] = []
        self._told: About = {}
        self._draining = False
        self._bells: About = {}
        self._wrong = ""  # the last error, which is not told again and again
        signals.worker_shutting_down.connect(self._drain, weak=False)

    def start(self, c: consumer.Consumer) -> None:
        if self.coordinated.coordinator.hindered:
            return
        c.coordinator_step = self
        if not self._bells:
            self._bells = about_bells(self.coordinated, self.coordinated.coordinator.store, c.hostname)
            self.tell({"rung": 1})  # its broker was away, and has lost some of its bells perhaps
        self._look(c)
        self._timers = [c.timer.call_repeatedly(_LOOK, self._look, (c,))]
        if c.hub is not None and c.coordinator_listening is not None:  # else nobody hears its error
            self._timers.append(c.timer.call_repeatedly(_LOOK, c.coordinator_listening.look, (_LOOK,)))

    def stop(self, c: consumer.Consumer) -> None:
        for timer in self._timers:
            timer.cancel()

    shutdown = stop

    def _look(self, c: consumer.Consumer) -> None:
        """Never raises: an exception here would end the worker."""
        try:
            if self._process is None or self._process.poll() is not None:
                if self._process is not None:
                    logger.error("the clock ended (exit %s); starting it again", self._process.returncode)
                self._told = self._condition(c)
                self._process = self._spawn(c)
            self._hear(c)
            self.coordinated.coordinator.board.events = _sends_task_events(c)
            if c.hub is not None:  # prefork has one; other pools keep no timers for time limits
                forget_cancelled(c.hub.timer)
            now = self._condition(c)
            changed = {name: value for name, value in now.items() if self._told.get(name) != value}
            if changed and self.tell(changed):
                self._told = now
            self._wrong = ""
        except Exception as error:
            again = self._wrong == str(error)
            logger.log(logging.DEBUG if again else logging.ERROR, "cannot look after the clock", exc_info=True)
            self._wrong = str(error)

    def _hear(self, c: consumer.Consumer) -> None:
        """Consume the own queue while this worker is the one that is registered under its name.

        Not before Celery's loop consumes: a message that nobody is there to take ends the worker. In a pool without a
        hub a timer's thread comes here, also while the worker ends and has no consumer any more.
        """
        if c.task_consumer is None or c.task_consumer.on_message is None:
            return
        try:
            told = os.read(self._ear, 4096)
        except BlockingIOError:
            return
        own = queue_of(c.hostname).name
        if told and (told[-1:] == b"1") != c.task_consumer.consuming_from(own):
            (c.add_task_queue if told[-1:] == b"1" else c.cancel_task_queue)(own)

    def _condition(self, c: consumer.Consumer) -> About:
        ordinary = sum(1 for request in state.reserved_requests if request.name != TASK)
        scaler = getattr(c.controller, "autoscaler", None)  # it grows the pool once there is more to do
        slots = scaler.max_concurrency if scaler else getattr(c.pool, "num_processes", None)
        told: About = {"capacity": max(1, int(slots or 1)), "ordinary": ordinary}
        return told | ({"ending": 1} if self._draining else {})

    def _spawn(self, c: consumer.Consumer) -> subprocess.Popen[bytes]:
        app = self.coordinated
        tasks = [name for name in app.tasks if not name.startswith(("celery.", "coordinator."))]
        about = self._told | {
            "app": app.main,
            "load": 0,
            "pool": type(c.pool).__module__.rpartition(".")[2],
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": VERSION,
            "queue": app.conf.task_default_queue,
            "routes": json.dumps(queues_of(app, tasks)),
            **self._bells,
        }
        labels = app.coordinator.settings.labels
        queues = [name for name in app.amqp.queues.consume_from if name != queue_of(c.hostname).name]
        charge = {
            "app": locate(app),
            "board": str(app.coordinator.board.folder),
            "settings": app.coordinator.settings.model_dump(mode="json"),
            "node": c.hostname,
            "incarnation": app.coordinator.incarnation,
            "worker": processes.identity(),
            "about": about,
            "serves": [f"app {app.main}", *(f"queue {name}" for name in queues), *(f"label {name}" for name in labels)],
            "tasks": [CANVAS, *tasks],
        }
        process = self._start("-m", "coordinator.clock")
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

    def tell(self, line: Mapping[str, str | int | float]) -> bool:
        """One line to the clock; False when it could not be written now.

        A pipe takes a line of up to PIPE_BUF bytes as a whole or not at all; a longer one might be cut.
        """
        if self._process is None or self._process.stdin is None:
            return False
        told = json.dumps(line).encode() + b"\n"
        if len(told) > PIPE_BUF:
            return False
        try:
            os.write(self._process.stdin.fileno(), told)
        except OSError:
            return False
        return True

    def cancel(self, job_id: str, terminate: bool = True) -> bool:
        """Have the clock cancel a job, also one that has begun if `terminate`; False for the id of no job."""
        if not validation.is_id(job_id):
            logger.warning("a revoke names no job: %s", validation.shown(job_id))
            return False
        return self.tell({"cancel" if terminate else "revoke": job_id})

    def _drain(self, **_: object) -> None:
        """A warm shutdown began: the node gets nothing new, and its jobs may end."""
        self._draining = True
        self.coordinated.coordinator.close()
        self.tell({"ending": 1})


def begin(app: Celery, sender: str, instance: WorkController) -> None:
    """Runs before the worker forks its pool, so that each process of it knows its worker."""
    coordinator = app.coordinator
    install_arrivals(app)
    if why := hindrance(app):
        coordinator.hindered = True
        logger.error("this worker runs no jobs: %s", why)
        return
    check(app)
    if is_redis(app.conf.broker_url) and (wrong := misfit(version("kombu"), version("redis"))):
        logger.warning(wrong)
    remote_control.install()
    install_runner(app, coordinator._place)
    tell_parents(app, coordinator._place)
    coordinator.incarnation = uuid.uuid4().hex
    coordinator.board = Board.open()
    coordinator.one_each = bool(instance.max_tasks_per_child)
    coordinator.documents.node = sender
    leftovers.clear(app, sender)
    add_queue(app, sender, consumed=not is_taken(app, sender))


def _sends_task_events(c: consumer.Consumer) -> bool:
    """As -E, `worker_send_task_events` or the remote control say. A dispatcher that serves gossip and heartbeats alone
    is there in every worker, and names its one group.
    """
    dispatcher = c.event_dispatcher
    return bool(dispatcher and dispatcher.enabled and (not dispatcher.groups or "task" in dispatcher.groups))


def forget_cancelled(timer: Timer) -> None:
    """Celery cancels the timer of a time limit when its task ends, but keeps it until it would have been due. Doorbells
    have limits of a year, so a worker would grow by 600 bytes for each.
    """
    if len(timer) < _MOST_TIMERS:
        return
    live = [one for one in timer.queue if not one.entry.canceled]
    timer.clear()
    for one in live:
        timer.enter_at(one.entry, one.eta, one.priority)
