"""The bootstep of a worker: adds the warden beside it, its wake-ups, a `revoke` that cancels jobs, and a consumer that
survives the loss of its broker.

The worker's event loop never calls Redis and never blocks, except for remote commands, for which Celery asks its
backend as well. Twice a second a timer checks that the clock (the first process of the warden) works, and sends it
what changed. The clock is a new process, not a fork. No thread of the coordinator runs while a pool may fork: a thread
looks after the clock only where no loop does, in a solo pool and at the end.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version

from celery import Celery, bootsteps, signals
from celery.worker import WorkController, consumer, state
from kombu.asynchronous.timer import Entry
from kombu.message import Message

from coordinator.broker import is_redis
from coordinator.celery_patches import heartbeat, pool_exit
from coordinator.celery_patches.consumer import LastingConsumer
from coordinator.celery_patches.last_slot import slots_of
from coordinator.celery_patches.listening import misfit
from coordinator.celery_patches.soft_shutdown import before_cold_shutdown
from coordinator.celery_patches.timers import forget_cancelled
from coordinator.fleet import processes
from coordinator.fleet.nodes import About
from coordinator.jobs import validation
from coordinator.jobs.chain import CANVAS, MAPS
from coordinator.keyed_task.arrivals import install_arrivals, into_lanes
from coordinator.runner.claim import TASK
from coordinator.runner.runner import install_runner
from coordinator.runner.subresults import track_subtasks
from coordinator.store.values import Json
from coordinator.threads import StoppableThread
from coordinator.version import VERSION
from coordinator.warden.companion import Companion
from coordinator.worker import remote_control
from coordinator.worker.fitness import check, hindrance, locate
from coordinator.worker.wakes import WakeUps

logger = logging.getLogger(__name__)

_LOOK = 0.5  # seconds between two ticks of the worker's timer
_FIRST = 60.0  # seconds until the clock's first sign of life


class Consumer(LastingConsumer):
    """Submits the messages of keyed tasks to their lanes, and returns a message for which no slot is left."""

    coordinator_step: WardenStep | None = None

    def update_strategies(self) -> None:
        super().update_strategies()
        into_lanes(self.app, self.strategies)

    def create_task_handler(self, *args: object, **kwargs: object) -> Callable[[Message], None]:
        usual: Callable[[Message], None] = super().create_task_handler(*args, **kwargs)

        def take(message: Message) -> None:
            step = self.coordinator_step
            if step is None or step.wakes.admit(self, message):
                usual(message)

        return take


class ClockThread(StoppableThread):
    """Looks after the clock while Celery's loop does not: the broker is away, a solo worker runs a job, or the worker
    ends.
    """

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__("coordinator-lookout", _LOOK)
        self._look = look

    def run(self) -> None:
        while not self.stopping.wait(_LOOK):
            self._look()


class WardenStep(bootsteps.StartStopStep):
    """Starts the clock, sends it what changes in the worker, and restarts it."""

    requires = ("celery.worker.consumer:Tasks",)

    def __init__(self, parent: consumer.Consumer, **kwargs: object) -> None:
        super().__init__(parent, **kwargs)
        self.coordinated: Celery = parent.app
        self._clock: Companion | None = None
        self._thread: ClockThread | None = None
        self._timers: list[Entry] = []
        self._sent: About = {}
        self._draining = False
        self.wakes = WakeUps()
        self._wrong = ""  # the last error, to log it once
        signals.worker_shutting_down.connect(self._drain, weak=False)
        before_cold_shutdown(parent.controller, self._drain)

    def start(self, c: consumer.Consumer) -> None:
        if self.coordinated.coordinator._hindered:
            return
        c.coordinator_step = self
        self._tick(c)
        self.wakes.start(c)
        self.send({"woken": 1})  # Celery forgets the messages that its pool has not begun when it loses its broker
        self._timers = [c.timer.call_repeatedly(_LOOK, self._tick, (c,))]
        if c.hub is not None and c.coordinator_listening is not None:  # without a hub nothing handles its error
            self._timers.append(c.timer.call_repeatedly(_LOOK, c.coordinator_listening.look, (_LOOK,)))
        self._use_thread(c, _pool_of(c) == "solo")

    def stop(self, c: consumer.Consumer) -> None:
        """Called when the broker is away and when the worker stops. Drain here, too, since Celery sends no signal for
        SIGHUP or a `shutdown` by remote control.
        """
        for timer in self._timers:
            timer.cancel()
        self.wakes.stop(c)
        if c.controller.blueprint.state != bootsteps.RUN:
            self._drain()
        self._use_thread(c, self._clock is not None)

    def _use_thread(self, c: consumer.Consumer, on: bool) -> None:
        """Start or stop the thread that looks after the clock."""
        if on and self._thread is None:
            self._thread = ClockThread(partial(self._look_after_clock, c))
            self._thread.start()
        elif not on and self._thread is not None:
            self._thread.stop()
            self._thread = None

    shutdown = stop

    def _tick(self, c: consumer.Consumer) -> None:
        """Look after the clock and send it what changed. Never raises: an exception here would end the worker."""
        try:
            self._look_after_clock(c)
            self.coordinated.coordinator._board.events = _sends_task_events(c)
            if c.hub is not None:  # prefork has one; other pools keep no timers for time limits
                forget_cancelled(c.hub.timer)
                c.pool.maintain_pool()  # Celery often looks before a killed process can be reaped, and then 5 s later
            now = self._condition(c)
            changed = {name: value for name, value in now.items() if self._sent.get(name) != value}
            if changed and self.send(changed):
                self._sent = now
            self._wrong = ""
        except Exception as error:
            level = logging.DEBUG if self._wrong == str(error) else logging.ERROR
            logger.log(level, "cannot look after the clock", exc_info=True)
            self._wrong = str(error)

    def _look_after_clock(self, c: consumer.Consumer) -> None:
        self.coordinated.coordinator._board.look(stops=state.should_stop not in (None, False))  # SIGHUP sets no more
        if self._clock is None:
            settings, board = self.coordinated.coordinator.settings, self.coordinated.coordinator._board
            command, note = ["-m", "coordinator.warden.clock"], board.folder / "clock"
            patience = 4 * settings.timeout + settings.gap  # the clock asks Redis between two signs of life
            self._clock = Companion("the clock", command, note, patience, _FIRST, [board.memory, self.wakes.clocks_end])
        self._clock.look(partial(self._charge, c))

    def _condition(self, c: consumer.Consumer) -> About:
        """The fields of the node that change while the worker runs."""
        ordinary = sum(1 for request in state.reserved_requests if request.name != TASK)
        scaler = getattr(c.controller, "autoscaler", None)  # grows the pool up to its maximum when there is work
        slots = scaler.max_concurrency if scaler else slots_of(c.pool)
        condition: About = {"capacity": max(1, int(slots)), "ordinary": ordinary}
        return condition | ({"ending": 1} if self._draining else {})

    def _charge(self, c: consumer.Consumer) -> Mapping[str, Json]:
        """The first line for the clock: see its `Charge`."""
        app = self.coordinated
        self._sent = self._condition(c)
        tasks = [name for name in app.tasks if not name.startswith(("celery.", "coordinator."))]
        about = self._sent | {
            "app": app.main,
            "load": 0,
            "pool": _pool_of(c),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": VERSION,
            "queue": app.conf.task_default_queue,
            "routes": json.dumps(app.coordinator._queues_of(tasks)),
        }
        settings = app.coordinator.settings
        return {
            "app": locate(app),
            "board": str(app.coordinator._board.folder),
            "memory": app.coordinator._board.memory,
            "wakes": self.wakes.clocks_end,
            "settings": settings.model_dump(mode="json") | {"gap": settings.gap},
            "node": c.hostname,
            "incarnation": app.coordinator._incarnation,
            "worker": processes.identity(),
            "about": about,
            "serves": [
                f"app {app.main}",
                *(f"queue {name}" for name in app.amqp.queues.consume_from),
                *(f"label {name}" for name in settings.labels),
            ],
            "tasks": [CANVAS, *MAPS, *tasks],
            "plugins": bool(app.coordinator._warden_plugins),
        }

    def send(self, line: About) -> bool:
        """Send the clock a line; False if that is not possible now."""
        return self._clock is not None and self._clock.send(line)

    def cancel(self, job_id: str, terminate: bool = True) -> bool:
        """Have the clock cancel a job; without `terminate` only if it has not begun. Returns False if no job can have
        this id, or the clock did not get the line.
        """
        if not validation.is_id(job_id):
            logger.warning("a revoke names no job: %s", validation.shown(job_id))
            return False
        return self.send({"cancel" if terminate else "revoke": job_id})

    def _drain(self, **_: object) -> None:
        """Begin to shut down: the node gets no new jobs, and those at work may end. Note it on the board first, since
        Celery may kill the pool's processes next.
        """
        self._draining = True
        if board := self.coordinated.coordinator._board:
            board.stops = True
        self.coordinated.coordinator.stop_submitting()
        self.send({"ending": 1})


def begin(app: Celery, sender: str, instance: WorkController) -> None:
    """Prepare the worker before it forks its pool, so that each process of the pool knows its worker."""
    coordinator = app.coordinator
    install_arrivals(app)
    if why := hindrance(app, sender):
        coordinator._hindered = True
        logger.error("this worker runs no jobs: %s", why)
        return
    check(app)
    if is_redis(app.conf.broker_url) and (wrong := misfit(version("kombu"), version("redis"))):
        logger.warning(wrong)
    heartbeat.install()
    pool_exit.bound()
    remote_control.install()
    install_runner(app, coordinator._place)
    track_subtasks(app, coordinator._place)
    coordinator._incarnation = uuid.uuid4().hex
    coordinator._one_each = bool(instance.max_tasks_per_child or instance.max_memory_per_child)
    coordinator._node = sender


def _pool_of(c: consumer.Consumer) -> str:
    return str(type(c.pool).__module__.rpartition(".")[2])


def _sends_task_events(c: consumer.Consumer) -> bool:
    """True if -E, `worker_send_task_events` or the remote control turned task events on. Every worker has a dispatcher;
    one for gossip and heartbeats alone has the group "worker" only.
    """
    dispatcher = c.event_dispatcher
    return bool(dispatcher and dispatcher.enabled and (not dispatcher.groups or "task" in dispatcher.groups))
