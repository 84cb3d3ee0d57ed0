"""The inbox: each node's warden takes requests from a queue of the broker, on which anybody may put anything.

    take    the inbox takes a message, which belongs to this node for some seconds
    read    it parses the message strictly as an object of the model, and refuses what does not fit
    handle  the app's handler submits a job, so that Redis has the job before the message is removed
    settle  the inbox removes the message

After a kill between any two of these, a node handles the message again, and the handler must tolerate that. The request
has the same id the second time: a model with a field `id` always gets one, which is the sender's own, or the id of the
Celery task message, or the tag that the message got when it was first taken.

A refused request goes to `<queue>.dead` as JSON: reason, at, node, encoding (utf-8 or base64), original. A message that
cannot be read as a request goes to `<queue>.unreadable`, so that a flood of these drives out no refused requests. Redis
cuts a message that is too long before a node reads it: then `original` is its beginning and `size` its bytes. Each list
keeps the last 1,000.

The inbox also refuses a message that ended the process of its handler four times.

After any other failure the message comes again some seconds later; others do not wait for it. While the store or the
broker does not answer, the inbox pauses.
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

from coordinator.errors import CoordinatorError, InvalidJob, Refused, SettingsError, StoreRefused, StoreUnavailable
from coordinator.store.client import Store
from coordinator.threads import StoppableThread, connections_closed
from coordinator.warden.inbox import message
from coordinator.warden.inbox.amqp_queue import AmqpQueue
from coordinator.warden.inbox.as_it_is import request_queue
from coordinator.warden.inbox.deaths import Deadly, counted
from coordinator.warden.inbox.queue import DEAD, UNREADABLE, RequestQueue, TakenMessage, driver_of

logger = logging.getLogger(__name__)

_LISTEN = 1.0  # seconds
_PAUSE, _LONGEST = 0.2, 5.0  # seconds between tries, doubling
_REST = 0.5  # seconds, at most
_REASON = 500  # characters

M = TypeVar("M", bound=BaseModel)


class Inbox(StoppableThread, Generic[M]):
    """A warden plugin that handles the requests of a queue on a node."""

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
            logger.error("inbox: %s", error)
            return
        while not self.stopping.is_set():
            self.stopping.wait(self.step())
        requests.close()

    def step(self) -> float:
        """Wait for a request and handle it. Never raises.

        Returns the seconds to rest: as long as the work took, so that a flood uses half a core at most.
        """
        began = time.monotonic()
        try:
            received = self._requests.take(_LISTEN)
            if received is not None:
                with connections_closed():
                    self._take_in(received)
        except Exception as error:
            self._requests.close()
            pause = float(min(_PAUSE * 2 ** min(self._failures, 10), _LONGEST))
            self._failures += 1
            self._log(logging.WARNING, f"{self._where} tries again after: {_short(error)}")
            return pause
        self._failures = 0
        return min(time.monotonic() - began, _REST) if received else 0.0

    @property
    def _where(self) -> str:
        return f"inbox {self.queue} on {self.node}"

    def _take_in(self, received: TakenMessage) -> None:
        try:
            request = self._read(received)
        except Exception as error:  # a model's validators may raise anything
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
            self._log(logging.ERROR, f"{self._where}: the handler failed; the inbox tries again", error)
        else:
            self._requests.settle(received)

    def _read(self, received: TakenMessage) -> M:
        data, task_id = message.read(received.message, self.queue, received.size)
        if "id" in self._model.model_fields and data.get("id") is None:
            data["id"] = received.tag if task_id is None else task_id
        return self._model.model_validate_json(json.dumps(data), strict=True)

    def _refuse(self, received: TakenMessage, error: Exception, place: str) -> None:
        store = self._store()
        # Readers ask this set where requests were refused, so they need not import the app's modules.
        store.read("SADD", store.key("inboxes", self._app.main or ""), self.queue)
        about = {"reason": _short(error), "at": datetime.now(UTC).isoformat(), "node": self.node}
        self._requests.refuse(
            received, json.dumps(about | _letter(received.message, received.size), ensure_ascii=False), place
        )
        self._log(logging.WARNING, f"{self._where} refused a message, now in {self.queue}{place}: {about['reason']}")


class _LimitedLog:
    """Logs at most ten lines a minute. The first line of the next minute tells how many were left out."""

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
    """A refused message in the form that is kept, of twice its bytes at most. `size`: its bytes before it was cut."""
    cut: dict[str, str | int] = {"size": size} if size > len(content) else {}
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(content, final=not cut)
    except UnicodeDecodeError:
        text = None
    if text is not None and len(json.dumps(text, ensure_ascii=False).encode()) <= 2 * len(content) + 2:
        return {"encoding": "utf-8", "original": text} | cut
    return {"encoding": "base64", "original": base64.b64encode(content).decode()} | cut


def open_queue(app: Celery, queue: str, node: str) -> RequestQueue | AmqpQueue:
    """Open the request queue on the app's broker. Raises SettingsError for a broker that has no inbox."""
    return RequestQueue(app, queue) if driver_of(app, queue) == "redis" else AmqpQueue(app, queue, node)


def inbox_maker(
    app: Celery, queue: str, model: type[M], handler: Callable[[M], None], store: Callable[[], Store]
) -> Callable[[str], Inbox[M]]:
    """Register the queue, and return the function that makes its inbox on a node."""
    register(app, queue, model)
    return lambda node: Inbox(app, queue, model, handler, node, store)


def register(app: Celery, queue: str, model: type[BaseModel]) -> None:
    """Check the model, and route `app.send_task(<queue>, kwargs={…})` to this queue instead of a worker's.

    Raises SettingsError for a model that lets unknown fields pass.
    """
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        raise SettingsError(f"inbox {queue!r}: model is a class of pydantic's BaseModel, not {model!r:.80}")
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


def _short(error: Exception) -> str:
    """The error as one short printable line, since a sender may put anything into a message."""
    text = f"{type(error).__name__}: {error}" if not isinstance(error, CoordinatorError | ValueError) else str(error)
    if isinstance(error, ValidationError):
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        text = "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'it'}: {fault['msg']}" for fault in faults)
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)[:_REASON]
