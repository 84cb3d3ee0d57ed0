"""The bootstep of a worker. It starts a supervisor process beside the worker, receives wake-ups, makes `revoke` cancel
jobs, and replaces the consumer by one that survives the loss of its broker.

The worker's event loop never calls the coordinator's Redis and never blocks, except in remote control commands. Twice a
second, a timer checks that the supervisor works, and sends the supervisor changes of the worker. The supervisor is a
new process, not a fork. No thread of the coordinator runs while a pool may fork: only where the event loop does not
run, in a solo pool and while the worker shuts down, a thread watches the supervisor.
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

from coordinator.core.broker import is_redis
from coordinator.core.celery_patches import heartbeat, pool_exit
from coordinator.core.celery_patches.consumer import LastingConsumer
from coordinator.core.celery_patches.last_slot import slots_of
from coordinator.core.celery_patches.listening import misfit
from coordinator.core.celery_patches.soft_shutdown import before_cold_shutdown
from coordinator.core.celery_patches.timers import forget_cancelled
from coordinator.core.fleet import processes
from coordinator.core.fleet.companion import Companion
from coordinator.core.fleet.nodes import About
from coordinator.core.jobs import validation
from coordinator.core.jobs.chain import CANVAS, MAPS
from coordinator.core.keyed_task.arrivals import install_arrivals, into_lanes
from coordinator.core.runner.claim import TASK
from coordinator.core.runner.runner import install_runner
from coordinator.core.runner.subresults import track_subtasks
from coordinator.core.store.values import Json
from coordinator.core.threads import StoppableThread
from coordinator.core.version import VERSION
from coordinator.core.worker import remote_control
from coordinator.core.worker.fitness import check, locate, why_unfit
from coordinator.core.worker.wakes import WakeUps

logger = logging.getLogger(__name__)

_LOOK = 0.5  # seconds between two checks of the supervisor
_FIRST = 60.0  # seconds that a new supervisor has until its first sign of life; then it is killed


class Consumer(LastingConsumer):
    """Celery's consumer, which also submits the messages of keyed tasks to their lanes, and returns a message to its
    queue if the pool has no free slot.
    """

    coordinator_step: SupervisorStep | None = None

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


class SupervisorThread(StoppableThread):
    """Calls `look` twice a second, to check the supervisor while Celery's event loop does not: the broker is away, the
    solo pool runs a job, or the worker shuts down.
    """

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__("coordinator-lookout", _LOOK)
        self._look = look

    def run(self) -> None:
        while not self.stopping.wait(_LOOK):
            self._look()


class SupervisorStep(bootsteps.StartStopStep):
    """Starts the supervisor of a worker, restarts it when it ends, and sends it changes of the worker."""

    requires = ("celery.worker.consumer:Tasks",)

    def __init__(self, parent: consumer.Consumer, **kwargs: object) -> None:
        super().__init__(parent, **kwargs)
        self.coordinated: Celery = parent.app
        self._supervisor: Companion | None = None
        self._thread: SupervisorThread | None = None
        self._timers: list[Entry] = []
        self._sent: About = {}
        self._draining = False  # True once the worker has begun to shut down
        self.wakes = WakeUps()
        self._wrong = ""  # the text of the last error of `_tick`; a repeated error is logged at level DEBUG
        signals.worker_shutting_down.connect(self._drain, weak=False)
        before_cold_shutdown(parent.controller, self._drain)

    def start(self, c: consumer.Consumer) -> None:
        if self.coordinated.coordinator._cannot_run_jobs:
            return
        c.coordinator_step = self
        self._tick(c)
        self.wakes.start(c)
        # When the connection to the broker was lost, Celery dropped all messages that its pool had not begun, also the
        # wake-ups: have the supervisor send these again.
        self.send({"woken": 1})
        self._timers = [c.timer.call_repeatedly(_LOOK, self._tick, (c,))]
        if c.hub is not None and c.coordinator_listening is not None:  # without a hub, nothing handles errors of `look`
            self._timers.append(c.timer.call_repeatedly(_LOOK, c.coordinator_listening.look, (_LOOK,)))
        self._use_thread(c, _pool_of(c) == "solo")

    def stop(self, c: consumer.Consumer) -> None:
        """Stop the timers. Celery calls this when the connection to the broker is lost and when the worker shuts down.
        In a shutdown, also stop taking jobs: after SIGHUP or the remote control `shutdown`, Celery sends no
        `worker_shutting_down`.
        """
        for timer in self._timers:
            timer.cancel()
        self.wakes.stop(c)
        if c.controller.blueprint.state != bootsteps.RUN:
            self._drain()
        self._use_thread(c, self._supervisor is not None)

    def _use_thread(self, c: consumer.Consumer, on: bool) -> None:
        """Start the thread that watches the supervisor if `on` is True, else stop it."""
        if on and self._thread is None:
            self._thread = SupervisorThread(partial(self._look_after_supervisor, c))
            self._thread.start()
        elif not on and self._thread is not None:
            self._thread.stop()
            self._thread = None

    shutdown = stop

    def _tick(self, c: consumer.Consumer) -> None:
        """Check the supervisor, and send it the fields of the node that changed. Called by a timer. Never raises: an
        exception in a timer would end the worker.
        """
        try:
            self._look_after_supervisor(c)
            self.coordinated.coordinator._status_file.events = _sends_task_events(c)
            if c.hub is not None:  # only prefork has a hub, and timers for time limits in it
                forget_cancelled(c.hub.timer)
                c.pool.maintain_pool()  # replace a killed process now: Celery would often do so only 5 s later
            now = self._condition(c)
            changed = {name: value for name, value in now.items() if self._sent.get(name) != value}
            if changed and self.send(changed):
                self._sent = now
            self._wrong = ""
        except Exception as error:
            level = logging.DEBUG if self._wrong == str(error) else logging.ERROR
            logger.log(level, "cannot check the supervisor, or send it changes of this worker", exc_info=True)
            self._wrong = str(error)

    def _look_after_supervisor(self, c: consumer.Consumer) -> None:
        status_file = self.coordinated.coordinator._status_file
        status_file.look(stops=state.should_stop not in (None, False))  # SIGHUP sets only this, and sends no signal
        if self._supervisor is None:
            settings = self.coordinated.coordinator.settings
            command, note = ["-m", "coordinator.core.supervisor"], status_file.folder / "supervisor"
            patience = 4 * settings.timeout + settings.gap  # between two signs of life, the supervisor waits for Redis
            handed = [status_file.fd, self.wakes.supervisor_end]
            self._supervisor = Companion("the supervisor", command, note, patience, _FIRST, handed)
        self._supervisor.look(partial(self._supervisor_config, c))

    def _condition(self, c: consumer.Consumer) -> About:
        """Return the fields of the node's record that change while the worker runs: `capacity`, the slots of its pool;
        `ordinary`, how many tasks it has that are no jobs; `ending`, set once it shuts down.
        """
        ordinary = sum(1 for request in state.reserved_requests if request.name != TASK)
        # With autoscaling, the maximum counts: Celery grows the pool up to it when there is work.
        scaler = getattr(c.controller, "autoscaler", None)
        slots = scaler.max_concurrency if scaler else slots_of(c.pool)
        condition: About = {"capacity": max(1, int(slots)), "ordinary": ordinary}
        return condition | ({"ending": 1} if self._draining else {})

    def _supervisor_config(self, c: consumer.Consumer) -> Mapping[str, Json]:
        """Return the first line for the supervisor's standard input: the fields of `SupervisorConfig`."""
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
            "status_folder": str(app.coordinator._status_file.folder),
            "status_fd": app.coordinator._status_file.fd,
            "wakes_fd": self.wakes.supervisor_end,
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
            "plugins": bool(app.coordinator._node_plugins),
        }

    def send(self, line: About) -> bool:
        """Write a line to the supervisor's standard input; False if it does not run or the pipe is full."""
        return self._supervisor is not None and self._supervisor.send(line)

    def cancel(self, job_id: str, terminate: bool = True) -> bool:
        """Have the supervisor cancel a job. `terminate`: False leaves a job that has begun. Returns False if `job_id`
        is not the id of a job by its form, or if the supervisor cannot be reached now.
        """
        if not validation.is_id(job_id):
            logger.warning("revoke: not an id of a job: %s", validation.shown(job_id))
            return False
        return self.send({"cancel" if terminate else "revoke": job_id})

    def _drain(self, **_: object) -> None:
        """Begin to shut down: the node gets no new jobs, and those that run may end. Write this to the status file
        first: if Celery then kills the processes of the pool, their jobs count as stopped and not as losses.
        """
        self._draining = True
        if status_file := self.coordinated.coordinator._status_file:
            status_file.stops = True
        self.coordinated.coordinator.stop_submitting()
        self.send({"ending": 1})


def begin(app: Celery, sender: str, instance: WorkController) -> None:
    """Prepare the worker `instance`, named `sender`, to run jobs. This happens before the worker forks its pool, so
    that each pool process has the node's name, incarnation and status file. A worker that cannot run jobs logs why.
    """
    coordinator = app.coordinator
    install_arrivals(app)
    if why := why_unfit(app, sender):
        coordinator._cannot_run_jobs = True
        logger.error("this worker runs no jobs: %s", why)
        return
    check(app)
    if is_redis(app.conf.broker_url) and (wrong := misfit(version("kombu"), version("redis"))):
        logger.warning(wrong)
    heartbeat.install()
    pool_exit.bound()
    remote_control.install()
    install_runner(app, coordinator._worker_context)
    track_subtasks(app, coordinator._worker_context)
    coordinator._incarnation = uuid.uuid4().hex
    coordinator._one_job_per_runner = bool(instance.max_tasks_per_child or instance.max_memory_per_child)
    coordinator._node = sender
    coordinator.store.connections.call_it("worker", sender)


def _pool_of(c: consumer.Consumer) -> str:
    return str(type(c.pool).__module__.rpartition(".")[2])


def _sends_task_events(c: consumer.Consumer) -> bool:
    """True if task events are on in the worker, by -E, `worker_send_task_events` or remote control. Every worker has an
    event dispatcher; a dispatcher that sends only gossip and heartbeats has the single group "worker".
    """
    dispatcher = c.event_dispatcher
    return bool(dispatcher and dispatcher.enabled and (not dispatcher.groups or "task" in dispatcher.groups))
