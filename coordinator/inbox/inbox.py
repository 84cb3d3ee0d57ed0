"""The inbox: each node consumes requests from a queue of the broker. The senders are not trusted.

    take    the inbox takes a message from the queue, and no other node may take it for 5 seconds
    read    the inbox parses the message strictly as an object of the pydantic model, and refuses what does not fit
    handle  the app's handler submits a job, so that Redis has the job before the message is acknowledged
    settle  the inbox acknowledges the message

After a kill between any two of these steps, a node handles the message again, so the handler must tolerate repeats. A
repeat has the same id: if the model has a field `id`, its value is the `id` in the sender's JSON, else the id of the
Celery task message, else the tag that the message got when it was first taken.

A request that the handler refused goes to `<queue>.dead` as JSON: reason, at, node, encoding (utf-8 or base64),
original. A message that cannot be parsed as a request goes to `<queue>.unreadable`, so that a flood of these displaces
no refused requests. Each of the two keeps the newest 1,000. A message above 16 KiB is cut before it is parsed: then
`original` is its beginning, and `size` its number of bytes.

The inbox also refuses a message during which the process of the handler has died four times. After any other failure a
message is delivered again some seconds later, and the messages behind it do not wait. While Redis or the broker does
not answer, the inbox pauses.
"""

from __future__ import annotations

import base64
import codecs
import json
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property
from typing import Generic, TypeVar

from celery import Celery
from pydantic import BaseModel, ValidationError

from coordinator.core.store.client import Store
from coordinator.core.threads import StoppableThread, connections_closed
from coordinator.errors import CoordinatorError, InvalidJob, Refused, SettingsError, StoreRefused, StoreUnavailable
from coordinator.inbox import message
from coordinator.inbox.amqp_queue import AmqpQueue
from coordinator.inbox.as_it_is import request_queue
from coordinator.inbox.deaths import Deadly, counted
from coordinator.inbox.queue import DEAD, UNREADABLE, RequestQueue, TakenMessage, driver_of

logger = logging.getLogger(__name__)

_LISTEN = 1.0  # seconds that `take` waits for a message
_PAUSE, _LONGEST = 0.2, 5.0  # first and longest pause in seconds after failures in a row; each is twice the last
_REST = 0.5  # seconds of rest after a message, at most
_REASON = 500  # characters of an error message that are kept

M = TypeVar("M", bound=BaseModel)


class Inbox(StoppableThread, Generic[M]):
    """A node plugin: a thread that handles the requests of one queue of the broker on one node.

    `model`: the pydantic class of a request; `handler`: called with each; `store()` returns the coordinator's Redis.
    """

    def __init__(
        self, app: Celery, queue: str, model: type[M], handler: Callable[[M], None], node: str,
        store: Callable[[], Store],
    ) -> None:  # fmt: skip
        super().__init__(f"inbox-{queue}", 2 * _LISTEN)
        self.queue = queue
        self.node = node
        self._app = app
        self._model = model
        self._handler = handler
        self._store = store
        self._failures = 0
        self._log = _LimitedLog()

    @cached_property
    def _requests(self) -> RequestQueue | AmqpQueue:
        return open_queue(self._app, self.queue, self.node)

    def run(self) -> None:
        try:
            requests = self._requests
        except SettingsError as error:
            logger.error("inbox %s does not start: %s", self.queue, error)
            return
        while not self.stopping.is_set():
            self.stopping.wait(self.step())
        requests.close()

    def step(self) -> float:
        """Wait up to a second for a request, and handle it. Logs errors, and never raises.

        Returns how many seconds the thread should rest before the next request: as long as this one took, so that a
        flood of requests uses half a core at most, or longer after a failure.
        """
        began = time.monotonic()
        try:
            received = self._requests.take(_LISTEN)
            if received is not None:
                with connections_closed():
                    self._process(received)
        except Exception as error:
            self._requests.close()
            pause = float(min(_PAUSE * 2 ** min(self._failures, 10), _LONGEST))
            self._failures += 1
            self._log(logging.WARNING, f"{self._where}: trying again in {pause:g} s after an error: {_short(error)}")
            return pause
        self._failures = 0
        return min(time.monotonic() - began, _REST) if received else 0.0

    @property
    def _where(self) -> str:
        return f"inbox {self.queue} on {self.node}"

    def _process(self, received: TakenMessage) -> None:
        try:
            request = self._read(received)
        except Exception as error:  # of any kind: a model may have validators that raise it
            self._refuse(received, error, UNREADABLE)
            return
        try:
            with counted(self._store(), self.queue, self.node, received):
                self._handler(request)
        except (Refused, InvalidJob, Deadly) as error:
            self._refuse(received, error, DEAD)
        except (StoreUnavailable, StoreRefused):
            raise
        except Exception as error:
            self._log(logging.ERROR, f"{self._where}: the handler failed; its message will be delivered again", error)
        else:
            self._requests.settle(received)

    def _read(self, received: TakenMessage) -> M:
        data, task_id = message.read(received.message, self.queue, received.size)
        if "id" in self._model.model_fields and data.get("id") is None:
            data["id"] = received.tag if task_id is None else task_id
        return self._model.model_validate_json(json.dumps(data), strict=True)

    def _refuse(self, received: TakenMessage, error: Exception, place: str) -> None:
        store = self._store()
        # A set of the app's inbox queues, by which commands find refused requests without importing the app's modules.
        store.read("SADD", store.key("inboxes", self._app.main or ""), self.queue)
        about = {"reason": _short(error), "at": datetime.now(UTC).isoformat(), "node": self.node}
        self._requests.refuse(
            received, json.dumps(about | _letter(received.message, received.size), ensure_ascii=False), place
        )
        self._log(logging.WARNING, f"{self._where} refused a message, now in {self.queue}{place}: {about['reason']}")


class _LimitedLog:
    """Logs at most ten lines a minute, so that a flood of bad messages does not flood the log. The first line after
    that says how many lines were left out.
    """

    def __init__(self) -> None:
        self._since = float("-inf")
        self._lines = 0

    def __call__(self, level: int, text: str, error: Exception | None = None) -> None:
        if time.monotonic() - self._since >= 60:
            left_out, self._since, self._lines = self._lines - 10, time.monotonic(), 0
            if left_out > 0:
                text = f"{text} (the log leaves out {left_out} lines before this one)"
        self._lines += 1
        if self._lines <= 10:
            logger.log(level, "%s", text, exc_info=error)


def _letter(content: bytes, size: int) -> dict[str, str | int]:
    """The fields `encoding`, `original` and `size` of a refused message: text as it is, or base64 where the text is not
    UTF-8 or takes more than twice the bytes as JSON. `size`: the bytes of the message before it was cut.
    """
    cut: dict[str, str | int] = {"size": size} if size > len(content) else {}
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(content, final=not cut)
    except UnicodeDecodeError:
        text = None
    if text is not None and len(json.dumps(text, ensure_ascii=False).encode()) <= 2 * len(content) + 2:
        return {"encoding": "utf-8", "original": text} | cut
    return {"encoding": "base64", "original": base64.b64encode(content).decode()} | cut


def open_queue(app: Celery, queue: str, node: str) -> RequestQueue | AmqpQueue:
    """Open the request queue `queue` on the app's broker, for the consumer `node`. Raises SettingsError for a broker
    that is neither Redis nor AMQP.
    """
    return RequestQueue(app, queue) if driver_of(app, queue) == "redis" else AmqpQueue(app, queue, node)


def inbox_maker(
    app: Celery, queue: str, model: type[M], handler: Callable[[M], None], store: Callable[[], Store]
) -> Callable[[str], Inbox[M]]:
    """Register the request queue with the app, and return a function that makes the inbox of the node of a
    given name.
    """
    register(app, queue, model)
    return lambda node: Inbox(app, queue, model, handler, node, store)


def register(app: Celery, queue: str, model: type[BaseModel]) -> None:
    """Check the model of a request, and make `app.send_task(<queue>, kwargs={…})` publish to this request queue instead
    of a worker's queue.

    Raises SettingsError if `model` is no pydantic model, or does not forbid unknown fields.
    """
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        raise SettingsError(f"inbox {queue!r}: model must be a subclass of pydantic's BaseModel, not {model!r:.80}")
    if model.model_config.get("extra") != "forbid":
        raise SettingsError(
            f"inbox {queue!r}: the model {model.__name__} accepts unknown fields: give it extra='forbid'"
        )
    own = {queue: {"queue": request_queue(queue)}}

    def put(sender: Celery, **_: object) -> None:
        routes = sender.conf.task_routes or ()
        sender.conf.task_routes = [own, *(routes if isinstance(routes, list | tuple) else (routes,))]

    if app.configured:
        put(app)
    else:
        app.on_after_configure.connect(put, weak=False)


def _short(error: Exception) -> str:
    """An error as one printable line of at most 500 characters, since the error may quote an untrusted message."""
    text = f"{type(error).__name__}: {error}" if not isinstance(error, CoordinatorError | ValueError) else str(error)
    if isinstance(error, ValidationError):
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        text = "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'it'}: {fault['msg']}" for fault in faults)
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)[:_REASON]
