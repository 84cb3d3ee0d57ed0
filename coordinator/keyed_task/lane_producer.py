"""The producer of a keyed task's call: where Celery publishes the message, it submits a job.

It publishes the event `task-sent` to the broker, as any producer would, with one of the app's own producers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Protocol, Self, TypedDict, Unpack, cast

from celery import Celery, states
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.exceptions import OperationalError
from kombu.messaging import Producer
from kombu.transport.virtual.exchange import TopicExchange

from coordinator.broker import is_redis
from coordinator.errors import InvalidJob, Locked, StoreUnavailable
from coordinator.jobs.options import SubmitOptions
from coordinator.jobs.request import KeyedCall
from coordinator.jobs.spec import Message, Signature, Spec
from coordinator.jobs.submission import Submission
from coordinator.jobs.validation import OwnId
from coordinator.keyed_task.coordinate import KeyedTask
from coordinator.keyed_task.message import Headers, MessageProperties, ReceivedCall, read

_TOPIC = TopicExchange(None)
_CANVAS = {"chain", "chord", "group"}


class Routed(TypedDict, total=False):
    """The options that say where a message goes."""

    exchange: Exchange | str | None
    routing_key: str | None
    declare: Sequence[Exchange | Queue] | None


class Sent(MessageProperties, Routed, total=False):
    """The options of `publish` that this module reads."""


class LaneUnavailable(StoreUnavailable, OperationalError):
    """Redis did not answer a call of a keyed task. Celery tries such a call again, under the same id."""


class Submit(Protocol):
    """A function that puts a call in line."""

    def __call__(
        self, keys: Sequence[str], signature: Signature, options: SubmitOptions, call: KeyedCall
    ) -> Submission: ...


class LaneProducer:
    """The producer of one call. `own`: the caller named the id of the call, and may wait under it. `reprs`: of its
    arguments, where the caller named them: they may hide secrets.
    """

    reprs: Message = {}  # noqa: RUF012

    def __init__(
        self, app: Celery, submit: Submit, keyed: KeyedTask, own: bool, producer: Producer | None = None,
        connection: Connection | None = None,
    ) -> None:  # fmt: skip
        self._app = app
        self._submit = submit
        self._keyed = keyed
        self._own = own
        self._producer = producer
        self._connection = connection
        self._lent = ExitStack()
        self._submission: Submission | None = None
        self._awaited = own

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lent.close()

    @property
    def connection(self) -> Connection:
        """For Celery, which reads the types of its errors; nothing connects."""
        return self._connection or self._app.producer_pool.connections.connection

    @property
    def serializer(self) -> None:
        return None

    def revive(self, _: object) -> None:
        """Do nothing; Celery calls it before it repeats a publish."""

    def publish(self, body: object, *, headers: Headers, **options: Unpack[Sent]) -> object:
        """Submit the first message, the call; publish later ones, which are events."""
        if self._submission is not None:
            return self._own_producer().publish(body, headers=headers, **options)
        number = options.get("priority")
        if number is not None and is_redis(self.connection):  # there, 0 goes first
            number = -number
        queue = queue_of(self._app, options)
        received = read(headers, options, body, queue, number)
        received.message.update(self.reprs)
        self._submission = self.submit(received)
        return None

    def submit(self, received: ReceivedCall) -> Submission:
        """Put the call in line. Raises InvalidJob, LaneFull, Locked, StoreRefused, LaneUnavailable."""
        signature = received.signature
        keys = self._keyed.keys_of(signature)
        options = self._keyed.options_of(signature)
        self._awaited = self._is_awaited(received)
        try:
            submission = self._submit(keys, signature, options, KeyedCall(received.message, self._awaited))
        except StoreUnavailable as error:
            raise LaneUnavailable(str(error), error.job_id) from error
        if submission.outcome == "skipped" and self._keyed.raises:
            raise Locked(keys[0], submission.of or None)
        if submission.outcome == "skipped" and not submission.of:
            self.fail(received, Locked(keys[0], None))
        return submission

    def result_id(self, task_id: str) -> str:
        """The id under which the caller gets the result."""
        submission = self._submission
        if submission and submission.outcome == "skipped" and submission.of and not self._awaited:
            return submission.of
        return task_id

    def _is_awaited(self, received: ReceivedCall) -> bool:
        """True if somebody may wait for the call under its own id. Nobody waits for a tick."""
        options, message = received.signature["options"], received.message
        if "link" in options or "link_error" in options or not _CANVAS.isdisjoint(message):
            return True
        return self._own and not isinstance(options["task_id"], OwnId)

    def fail(self, received: ReceivedCall, error: BaseException) -> None:
        """End a call that became no job, such as one that met a lock or an operator's pause."""
        from coordinator.runner import canvas  # few clients need it

        options = received.signature["options"]
        spec: Spec = {"message": received.message}
        if "link_error" in options:
            spec["link_error"] = cast(list[Signature], options["link_error"])
        kept = canvas.has_results(self._app) and not options.get("ignore_result")
        args, kwargs = tuple(received.signature["args"]), dict(received.signature["kwargs"])
        request = canvas.request_of(
            args, kwargs, "", canvas.Caller(options["task_id"], received.signature["task"], spec), kept
        )
        canvas.go_on(self._app, request, canvas.Ended(states.FAILURE, error, None), kept)

    def _own_producer(self) -> Producer:
        """The caller's producer, or a producer of the app's pool until the call is over."""
        if self._producer is None:
            self._producer = self._lent.enter_context(self._app.producer_pool.acquire(block=True))
        return self._producer


def queue_of(app: Celery, options: Routed) -> str:
    """The queue that the message would have gone to. Raises InvalidJob where no queue is known for its exchange."""
    exchange, key = options.get("exchange"), options.get("routing_key")
    exchange = getattr(exchange, "name", exchange) or ""
    named = [queue for queue in options.get("declare") or () if isinstance(queue, Queue)]  # the default one, often
    for queue in (*named, *app.amqp.queues.values()):
        if (exchange, key) == ("", queue.name) or (exchange == queue.exchange.name and _leads_to(queue, key)):
            return str(queue.name)
    raise InvalidJob(f"exchange {exchange!r} with routing_key {key!r} leads to no queue of the app: name the queue")


def _leads_to(queue: Queue, key: str | None) -> bool:
    """True if the queue's own exchange gives it a message with this routing key."""
    if queue.exchange.type == "topic":
        return re.match(_TOPIC.key_to_pattern(queue.routing_key), key or "") is not None
    return queue.exchange.type in ("fanout", "headers") or (queue.routing_key or "") == (key or "")
