"""Every node's warden takes requests from a queue of the broker on which anybody may put anything.

    take    the inbox moves messages to this node's own list: the node has received them
    read    the inbox reads each message as an object of the model, strictly, and refuses it if it is none
    handle  the app's handler submits a job, so that Redis has the truth before the message goes
    settle  the inbox removes the message from the node's list

After a kill between any two of these, a node handles the message once more. The handler must tolerate that. It can,
since the request has the same id the second time: a model with a field `id` always gets one, namely the sender's own,
else that of the Celery task message, else the tag that the message got when it was first moved.

A refused message ends in `<queue>.dead` as JSON: reason, at, node, encoding (utf-8 or base64), original. Redis
cuts a message that is too long before a node reads it: `original` is its beginning and `size` tells its bytes. The last
1,000 refused messages are kept.

A message that ends the process of its handler three times more is refused, too.

After any other failure the message stays received, and the inbox tries again: all messages where the store or the
broker does not answer, that one message where only the handler fails. A failing message holds up no other.
"""

from __future__ import annotations

import base64
import codecs
import json
import logging
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from functools import cached_property
from typing import Generic, TypeVar

from celery import Celery
from pydantic import BaseModel, ValidationError

from coordinator.errors import CoordinatorError, InvalidJob, SettingsError, StoreRefused, StoreUnavailable
from coordinator.inbox import message
from coordinator.inbox.amqp_queue import AmqpQueue
from coordinator.inbox.as_it_is import request_queue
from coordinator.inbox.deaths import Deadly, counted
from coordinator.inbox.queue import Received, RequestQueue
from coordinator.store.client import Store
from coordinator.threads import StoppableThread

logger = logging.getLogger(__name__)

_MOST = 64  # messages that a node has received at a time
_LISTEN = 1.0  # seconds
_LOOK = 2.0  # seconds between looks for dead nodes
_PAUSE, _LONGEST = 0.2, 5.0  # seconds between tries, doubling
_REST = 0.5  # seconds, at most
_REASON = 500  # characters

M = TypeVar("M", bound=BaseModel)


class Refused(CoordinatorError):
    """Raised by a handler: nobody can ever do this request. The inbox keeps the reason with it, for operators."""


class Inbox(StoppableThread, Generic[M]):
    """One queue on one node, a warden plugin. `living`: the names of the nodes that live now.

    When it stops, its received messages stay: this node takes them again, or another one once this one is gone.
    """

    def __init__(
        self,
        app: Celery,
        queue: str,
        model: type[M],
        handler: Callable[[M], None],
        node: str,
        living: Callable[[], Collection[str]],
        store: Callable[[], Store],
    ) -> None:
        super().__init__(f"inbox-{queue}", 2 * _LISTEN)
        self.queue = queue
        self.node = node
        self._app = app
        self._model = model
        self._handler = handler
        self._living = living
        self._store = store
        self._failures = 0
        self._delayed: dict[str, tuple[int, float]] = {}  # by tag: failures of the handler, when to try again
        self._looked = float("-inf")
        self._say = _Sparingly()

    @cached_property
    def _requests(self) -> RequestQueue | AmqpQueue:
        return open_queue(self._app, self.queue, self.node)

    def run(self) -> None:
        try:
            requests = self._requests
        except SettingsError as error:
            logger.error("inbox: %s", error)
            return
        while not self.stopping.is_set():
            self.stopping.wait(self.step())
        requests.close()

    def step(self) -> float:
        """Handle the requests that are there, or listen for some. Never raises.

        Returns the seconds to rest: as long as the work took, so that a flood takes half a core at most.
        """
        began = time.monotonic()
        try:
            self._adopt()
            worked = self._work()
        except Exception as error:
            self._requests.close()
            pause = _backoff(self._failures)
            self._failures += 1
            self._say(logging.WARNING, f"{self._where} tries again after: {_short(error)}")
            return pause
        self._failures = 0
        return min(time.monotonic() - began, _REST) if worked else 0.0

    @property
    def _where(self) -> str:
        return f"inbox {self.queue} on {self.node}"

    def _adopt(self) -> None:
        if time.monotonic() - self._looked < _LOOK:
            return
        if others := self._requests.others():
            for dead in sorted(others - set(self._living())):
                if number := self._requests.adopt(dead):
                    logger.warning("%s: took over %d requests that %s had received", self._where, number, dead)
        self._looked = time.monotonic()

    def _work(self) -> bool:
        """Whether there was anything to do."""
        received = self._requests.take(_MOST)
        self._delayed = {one.tag: self._delayed[one.tag] for one in received if one.tag in self._delayed}
        now = time.monotonic()
        due = [one for one in received if one.tag not in self._delayed or self._delayed[one.tag][1] <= now]
        if not due and len(received) < _MOST:
            self._requests.listen(_LISTEN)
        elif not due:
            self.stopping.wait(_LISTEN)
        for one in due:
            if self.stopping.is_set():
                break
            self._take_in(one)
        return bool(due)

    def _take_in(self, received: Received) -> None:
        try:
            request = self._read(received)
        except Exception as error:  # a model's validators may raise anything
            self._refuse(received, error)
            return
        try:
            with counted(self._store(), self.queue, self.node, received):
                self._handler(request)
        except (Refused, InvalidJob, Deadly) as error:
            self._refuse(received, error)
        except (StoreUnavailable, StoreRefused):
            raise
        except Exception as error:
            tries = self._delayed.get(received.tag, (0, 0.0))[0]
            self._delayed[received.tag] = (tries + 1, time.monotonic() + 6 * _backoff(tries))
            self._say(logging.ERROR, f"{self._where}: the handler failed; the inbox tries again", error)
        else:
            self._requests.settle(received)

    def _read(self, received: Received) -> M:
        data, task_id = message.read(received.message, self.queue, received.size)
        if "id" in self._model.model_fields and data.get("id") is None:
            data["id"] = received.tag if task_id is None else task_id
        return self._model.model_validate_json(json.dumps(data), strict=True)

    def _refuse(self, received: Received, error: Exception) -> None:
        about = {"reason": _short(error), "at": datetime.now(UTC).isoformat(), "node": self.node}
        self._requests.refuse(
            received, json.dumps(about | _letter(received.message, received.size), ensure_ascii=False)
        )
        self._say(logging.WARNING, f"{self._where} refused a message, now in {self.queue}.dead: {about['reason']}")


class _Sparingly:
    """Logs at most ten lines a minute. The first line after that says how many it left out."""

    def __init__(self) -> None:
        self._since = float("-inf")
        self._said = 0

    def __call__(self, level: int, text: str, error: Exception | None = None) -> None:
        if time.monotonic() - self._since >= 60:
            left_out, self._since, self._said = self._said - 10, time.monotonic(), 0
            if left_out > 0:
                text = f"{text} (the log leaves out {left_out} lines before this one)"
        self._said += 1
        if self._said <= 10:
            logger.log(level, "%s", text, exc_info=error)


def _letter(found: bytes, size: int) -> dict[str, str | int]:
    """A refused message as it is kept, in twice its bytes at most. `size`: of one of which this is the beginning."""
    cut: dict[str, str | int] = {"size": size} if size > len(found) else {}
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(found, final=not cut)
    except UnicodeDecodeError:
        text = None
    if text is not None and len(json.dumps(text, ensure_ascii=False).encode()) <= 2 * len(found) + 2:
        return {"encoding": "utf-8", "original": text} | cut
    return {"encoding": "base64", "original": base64.b64encode(found).decode()} | cut


def open_queue(app: Celery, queue: str, node: str) -> RequestQueue | AmqpQueue:
    """Raises SettingsError where the inbox cannot take requests from the app's broker."""
    try:
        with app.connection_for_read() as connection:
            driver = connection.transport.driver_type
    except Exception as error:
        raise SettingsError(f"queue {queue!r}: cannot use the broker's transport: {error}") from error
    if driver not in ("redis", "amqp"):
        raise SettingsError(f"queue {queue!r}: an inbox needs Redis or RabbitMQ as its broker, this one is {driver!r}")
    return RequestQueue(app, queue, node) if driver == "redis" else AmqpQueue(app, queue, node)


def inbox_maker(
    app: Celery, queue: str, model: type[M], handler: Callable[[M], None], living: Callable[[], Collection[str]],
    store: Callable[[], Store],
) -> Callable[[str], Inbox[M]]:  # fmt: skip
    """Register the queue; gives the function that makes its inbox on a node."""
    register(app, queue, model)
    return lambda node: Inbox(app, queue, model, handler, node, living, store)


def register(app: Celery, queue: str, model: type[BaseModel]) -> None:
    """Check the model, and route `app.send_task(<queue>, kwargs={…})` to this queue instead of a worker's.

    Raises SettingsError for a model that lets unknown fields pass.
    """
    if model.model_config.get("extra") != "forbid":
        raise SettingsError(f"inbox {queue!r}: the model {model.__name__} takes unknown fields; give it extra='forbid'")
    own = {queue: {"queue": request_queue(queue)}}

    def put(sender: Celery, **_: object) -> None:
        routes = sender.conf.task_routes or ()
        sender.conf.task_routes = [own, *(routes if isinstance(routes, list | tuple) else (routes,))]

    if app.configured:
        put(app)
    else:
        app.on_after_configure.connect(put, weak=False)


def _backoff(failures: int) -> float:
    return float(min(_PAUSE * 2 ** min(failures, 10), _LONGEST))


def _short(error: Exception) -> str:
    """One printable line, since a sender may put anything into a message."""
    text = f"{type(error).__name__}: {error}" if not isinstance(error, CoordinatorError | ValueError) else str(error)
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False, include_context=False, include_input=False)
        text = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}" for one in found)
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)[:_REASON]
