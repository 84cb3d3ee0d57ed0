"""Puts messages of keyed tasks in line that reach a worker as ordinary messages.

Such a message comes from a process that knows only the task's name, or from a worker that lacks the task and went on
with a chain. The worker submits the call under the message's task id, and then acknowledges the message. So a message
stays unacknowledged while Redis is away, and a message that comes twice starts nothing twice.

The worker's event loop never waits for Redis: it passes the message to the pool, as the argument of the task
`coordinator.arrive`.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from typing import Protocol

from celery import Celery
from celery.app.task import Task
from celery.exceptions import InvalidTaskError, Reject
from celery.worker import state
from kombu.message import Message
from kombu.utils.json import dumps

from coordinator.broker import is_redis
from coordinator.celery_patches.quiet_task import QuietTask
from coordinator.errors import InvalidJob, LaneFull, Locked, SettingsError, StoreRefused, StoreUnavailable
from coordinator.keyed_task.calls import KeyedTasks
from coordinator.keyed_task.lane_producer import LaneProducer, queue_of
from coordinator.keyed_task.message import PAST, Headers, MessageProperties, ReceivedCall, read

logger = logging.getLogger(__name__)

TASK = "coordinator.arrive"
_OPTIONS = {
    "shared": False, "bind": True, "ignore_result": True, "send_events": False, "acks_late": True, "rate_limit": None,
    "reject_on_worker_lost": True, "retry_on_worker_lost": False,
}  # fmt: skip
_YEAR = 366 * 24 * 3600  # above any limit of an app: such a limit would end the wait for Redis, and lose the message
_WAIT = 5.0  # seconds for which a process waits for Redis; then the message goes back to its queue
_PAUSE = 0.25

Settle = Callable[..., None]  # acknowledges or rejects a message


class MessageHandler(Protocol):
    """A Celery strategy: takes the messages of one task in a worker."""

    def __call__(
        self, message: Message, body: object, ack: Settle, reject: Settle, callbacks: Sequence[Callable[..., None]]
    ) -> None: ...


def install_arrivals(app: Celery) -> None:
    """Make the task `coordinator.arrive`, which submits the call of a message."""
    keyed_tasks: KeyedTasks = app.coordinator._keyed_tasks

    def arrive(task: Task, headers: Headers, properties: MessageProperties, body: object, queue: str) -> None:
        keyed = keyed_tasks.named(headers["task"])
        if keyed is None:
            raise Reject(f"{headers['task']} is no keyed task here", requeue=True)
        producer = LaneProducer(app, keyed_tasks.submit, keyed, own=True)
        number = properties.get("priority") or None  # kombu sends 0 where nobody named one
        if number and is_redis(producer.connection):
            number = -number
        _put_in_line(producer, read(headers, properties, body, queue, number))

    app.task(arrive, name=TASK, base=QuietTask, **_OPTIONS)


def _put_in_line(producer: LaneProducer, received: ReceivedCall) -> None:
    until = time.monotonic() + _WAIT
    while True:
        try:
            submission = producer.submit(received)
        except (InvalidJob, LaneFull, Locked) as error:
            logger.error("a message of %s has come, and cannot be put in line: %s", received.signature["task"], error)
            return producer.fail(received, error)
        except (SettingsError, StoreUnavailable, StoreRefused) as error:
            if time.monotonic() > until:
                logger.warning("a message of %s goes back to its queue: %s", received.signature["task"], error)
                raise Reject(str(error), requeue=True) from error
            time.sleep(_PAUSE)
        else:
            logger.info(
                "a message of %s has come: %s, %s", received.signature["task"], submission.id, submission.outcome
            )
            return None


def into_lanes(app: Celery, strategies: MutableMapping[str, MessageHandler]) -> None:
    """Make a worker put messages of keyed tasks in line. `strategies`: Celery's, by the name of the task."""
    keyed_tasks: KeyedTasks = app.coordinator._keyed_tasks
    arrive = strategies[TASK]
    for name, task in app.tasks.items():
        if keyed_tasks.of(task) is not None:
            strategies[name] = partial(_take, app, strategies[name], arrive)


def _take(
    app: Celery, usual: MessageHandler, arrive: MessageHandler, message: Message, body: object, ack: Settle,
    reject: Settle, callbacks: Sequence[Callable[..., None]],
) -> None:  # fmt: skip
    """Take a message. Leaves to Celery a message that was revoked, or is to go past its lane."""
    headers = message.headers
    if body is not None or "id" not in headers or headers.get(PAST) is False or headers["id"] in state.revoked:
        usual(message, body, ack, reject, callbacks)
    else:
        arrive(_wrapped(app, message), None, ack, reject, callbacks)


def _wrapped(app: Celery, message: Message) -> Message:
    """Make the message the argument of our task. Refuses arguments that JSON cannot hold."""
    try:
        queue = queue_of(app, message.delivery_info)
    except InvalidJob:
        queue = app.conf.task_default_queue
    try:
        text = dumps(([message.headers, message.properties, message.payload, queue], {}, {}))
    except (TypeError, ValueError) as error:
        raise InvalidTaskError(f"a keyed task takes arguments that JSON has: {error}") from error
    own = copy.copy(message)
    own.headers = {
        "lang": "py",
        "task": TASK,
        "id": message.headers["id"],
        "shadow": message.headers["task"],
        "retries": 0,
        "timelimit": [_YEAR, _YEAR],
        "ignore_result": True,
    }
    own.body, own._decoded_cache = text, None
    own.content_type, own.content_encoding = "application/json", "utf-8"
    own.accept = {"application/json"}
    return own
