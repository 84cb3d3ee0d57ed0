"""Submits calls of keyed tasks that a worker receives as ordinary task messages.

Such a message comes from a process that knows only the name of the task, or from a worker that lacks the task and has
published the next step of a chain. The receiving worker submits the call under the task id of the message, and then
acknowledges the message. So the message stays unacknowledged while Redis does not answer, and a redelivered message
makes no second job.

The worker's event loop never waits for Redis: it passes the message on to the pool, as the argument of the task
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

from coordinator.core.broker import is_redis
from coordinator.core.celery_patches.quiet_task import QuietTask
from coordinator.core.keyed_task.calls import KeyedTasks
from coordinator.core.keyed_task.lane_producer import LaneProducer, queue_of
from coordinator.core.keyed_task.message import PAST, Headers, MessageProperties, ReceivedCall, read
from coordinator.errors import InvalidJob, LaneFull, Locked, SettingsError, StoreRefused, StoreUnavailable

logger = logging.getLogger(__name__)

TASK = "coordinator.arrive"
_OPTIONS = {
    "shared": False, "bind": True, "ignore_result": True, "send_events": False, "acks_late": True, "rate_limit": None,
    "reject_on_worker_lost": True, "retry_on_worker_lost": False,
}  # fmt: skip
# The time limit of the task, above any limit of the app: a lower one would end the wait for Redis and lose the message.
_YEAR = 366 * 24 * 3600
_WAIT = 5.0  # seconds for which the task waits for Redis; then the message goes back to its queue
_PAUSE = 0.25  # seconds between two tries to submit

Settle = Callable[..., None]  # a function that acknowledges or rejects a message


class MessageHandler(Protocol):
    """The type of a Celery strategy, the function that a worker calls for each message of one task."""

    def __call__(
        self, message: Message, body: object, ack: Settle, reject: Settle, callbacks: Sequence[Callable[..., None]]
    ) -> None: ...


def install_arrivals(app: Celery) -> None:
    """Register the task `coordinator.arrive` in the app, which submits a received message of a keyed task as a job."""
    keyed_tasks: KeyedTasks = app.coordinator._keyed_tasks

    def arrive(task: Task, headers: Headers, properties: MessageProperties, body: object, queue: str) -> None:
        keyed = keyed_tasks.named(headers["task"])
        if keyed is None:
            raise Reject(f"{headers['task']} is no keyed task in this worker", requeue=True)
        producer = LaneProducer(app, keyed_tasks.submit, keyed, own=True)
        number = properties.get("priority") or None  # kombu writes 0 where the caller named no priority
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
            logger.error("cannot submit a message of task %s: %s", received.signature["task"], error)
            return producer.fail(received, error)
        except (SettingsError, StoreUnavailable, StoreRefused) as error:
            if time.monotonic() > until:
                logger.warning("a message of task %s goes back to its queue: %s", received.signature["task"], error)
                raise Reject(str(error), requeue=True) from error
            time.sleep(_PAUSE)
        else:
            logger.info(
                "submitted a message of %s: job %s, %s", received.signature["task"], submission.id, submission.outcome
            )
            return None


def into_lanes(app: Celery, strategies: MutableMapping[str, MessageHandler]) -> None:
    """Make a worker submit the messages of keyed tasks instead of running them. `strategies`: Celery's functions that
    handle a message, by the name of the task; those of keyed tasks are replaced.
    """
    keyed_tasks: KeyedTasks = app.coordinator._keyed_tasks
    arrive = strategies[TASK]
    for name, task in app.tasks.items():
        if keyed_tasks.of(task) is not None:
            strategies[name] = partial(_take, app, strategies[name], arrive)


def _take(
    app: Celery, usual: MessageHandler, arrive: MessageHandler, message: Message, body: object, ack: Settle,
    reject: Settle, callbacks: Sequence[Callable[..., None]],
) -> None:  # fmt: skip
    """Handle a message of a keyed task. If the task was revoked, or was called with `coordinate=False`, `usual` handles
    the message, as Celery does; otherwise `arrive`, which submits the call as a job.
    """
    headers = message.headers
    if body is not None or "id" not in headers or headers.get(PAST) is False or headers["id"] in state.revoked:
        usual(message, body, ack, reject, callbacks)
    else:
        arrive(_wrapped(app, message), None, ack, reject, callbacks)


def _wrapped(app: Celery, message: Message) -> Message:
    """Make from a received message one of the task `coordinator.arrive`, whose arguments are the headers, properties,
    body and queue of the received one. Raises InvalidTaskError if they have no JSON form.
    """
    try:
        queue = queue_of(app, message.delivery_info)
    except InvalidJob:
        queue = app.conf.task_default_queue
    try:
        text = dumps(([message.headers, message.properties, message.payload, queue], {}, {}))
    except (TypeError, ValueError) as error:
        raise InvalidTaskError(f"arguments of a keyed task must have a JSON form: {error}") from error
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
