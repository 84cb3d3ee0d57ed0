"""The producer that Celery gets for the call of a keyed task: its `publish` submits the message as a job.

Celery's event `task-sent` is still published to the broker, with a producer of the caller or of the app.
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

from coordinator.core.broker import is_redis
from coordinator.core.jobs.options import SubmitOptions
from coordinator.core.jobs.request import KeyedCall
from coordinator.core.jobs.spec import Message, Signature, Spec
from coordinator.core.jobs.submission import Submission
from coordinator.core.jobs.validation import OwnId
from coordinator.core.keyed_task.coordinate import KeyedTask
from coordinator.core.keyed_task.message import Headers, MessageProperties, ReceivedCall, read
from coordinator.errors import InvalidJob, Locked, StoreUnavailable

_TOPIC = TopicExchange(None)
_CANVAS = {"chain", "chord", "group"}


class Routed(TypedDict, total=False):
    """The options of a publish that say to which queue the message goes."""

    exchange: Exchange | str | None
    routing_key: str | None
    declare: Sequence[Exchange | Queue] | None


class Sent(MessageProperties, Routed, total=False):
    """Those options of a publish that this module reads."""


class LaneUnavailable(StoreUnavailable, OperationalError):
    """Raised by the call of a keyed task if Redis does not answer. As an OperationalError, it makes Celery retry the
    call by `retry_policy`, under the same id.
    """


class Submit(Protocol):
    """The type of a function that submits a call as a job."""

    def __call__(
        self, keys: Sequence[str], signature: Signature, options: SubmitOptions, call: KeyedCall
    ) -> Submission: ...


class LaneProducer:
    """The producer for one call of a keyed task.

    `own`: the caller has named the id of the call, and may wait for a result under this id. `producer`, `connection`:
    of the caller, for events; None: the app's. `reprs`: `argsrepr` and `kwargsrepr`, where the caller named them, for
    example to hide secrets.
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
        """A connection to the broker from which Celery reads the types of its errors; it is not opened."""
        return self._connection or self._app.producer_pool.connections.connection

    @property
    def serializer(self) -> None:
        return None

    def revive(self, _: object) -> None:
        """Do nothing: Celery calls this before it repeats a publish, to reopen a channel, and there is none."""

    def publish(self, body: object, *, headers: Headers, **options: Unpack[Sent]) -> object:
        """Submit the first message, which is the call. Publish all later messages, which are events, to the broker."""
        if self._submission is not None:
            return self._own_producer().publish(body, headers=headers, **options)
        number = options.get("priority")
        if number is not None and is_redis(self.connection):  # with a Redis broker, Celery's priority 0 goes first
            number = -number
        queue = queue_of(self._app, options)
        received = read(headers, options, body, queue, number)
        received.message.update(self.reprs)
        self._submission = self.submit(received)
        return None

    def submit(self, received: ReceivedCall) -> Submission:
        """Submit the call as a job. Raises InvalidJob, LaneFull, Locked, StoreRefused or LaneUnavailable. A call that
        was skipped because of a pause stores Locked as its result, unless it raises Locked (`on_skip`).
        """
        signature = received.signature
        keys = self._keyed.keys_of(signature)
        options = self._keyed.options_of(signature)
        self._awaited = self._is_awaited(received)
        try:
            submission = self._submit(keys, signature, options, KeyedCall(received.message, self._awaited))
        except StoreUnavailable as error:
            raise LaneUnavailable(str(error), error.job_id) from error
        if submission.outcome == "skipped" and self._keyed.raises:
            raise Locked(keys[0] if keys else "", submission.of or None)
        if submission.outcome == "skipped" and not submission.of:
            self.fail(received, Locked(keys[0], None))
        return submission

    def result_id(self, task_id: str) -> str:
        """The id for the AsyncResult of the call: `task_id`, or the id of the job for which the call was skipped, or
        which collected it.
        """
        submission = self._submission
        joined = submission and (submission.outcome == "skipped" or self._keyed.options.get("collect") is not None)
        if submission and joined and submission.of and not self._awaited:
            return submission.of
        return task_id

    def _is_awaited(self, received: ReceivedCall) -> bool:
        """True if a result may be awaited under the id of the call: the caller named the id, or the call has links or a
        place in a canvas. Nothing waits for the id of a tick, which a beat named.
        """
        options, message = received.signature["options"], received.message
        if "link" in options or "link_error" in options or not _CANVAS.isdisjoint(message):
            return True
        return self._own and not isinstance(options["task_id"], OwnId)

    def fail(self, received: ReceivedCall, error: BaseException) -> None:
        """Store `error` as the result of a call that did not become a job, for example because its lane was paused, and
        publish its errbacks.
        """
        from coordinator.core.runner import canvas  # imported here, since most clients never need it

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
        """The caller's producer, or one of the app's pool, which is given back when the call is over."""
        if self._producer is None:
            self._producer = self._lent.enter_context(self._app.producer_pool.acquire(block=True))
        return self._producer


def queue_of(app: Celery, options: Routed) -> str:
    """The name of the queue to which the broker would have delivered a message with these options. Raises InvalidJob if
    no queue of the app gets messages of its exchange and routing key.
    """
    exchange, key = options.get("exchange"), options.get("routing_key")
    exchange = getattr(exchange, "name", exchange) or ""
    # Celery's router puts the queue of the call into `declare`: of most calls the default queue, which is tried first.
    named = [queue for queue in options.get("declare") or () if isinstance(queue, Queue)]
    for queue in (*named, *app.amqp.queues.values()):
        if (exchange, key) == ("", queue.name) or (exchange == queue.exchange.name and _leads_to(queue, key)):
            return str(queue.name)
    raise InvalidJob(f"exchange {exchange!r} with routing_key {key!r} leads to no queue of the app: name the queue")


def _leads_to(queue: Queue, key: str | None) -> bool:
    """True if the exchange to which the queue is bound would deliver a message with routing key `key` to the queue."""
    if queue.exchange.type == "topic":
        return re.match(_TOPIC.key_to_pattern(queue.routing_key), key or "") is not None
    return queue.exchange.type in ("fanout", "headers") or (queue.routing_key or "") == (key or "")
