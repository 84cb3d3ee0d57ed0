"""Requests from a queue of the broker that anybody may put anything on, taken in by every node's warden.

    take    move messages into this node's hand
    read    an object of the model, strictly; what is none is refused
    handle  the app's handler; it submits, so the truth is stored before the message goes
    settle  let go of the message

Killed between any two of these, the message is handled once more: the handler must tolerate that, and can, since the
second time is told by the same id. A model with a field `id` always gets one: the sender's own, else that of the
Celery task message, else the tag that the message got when it was first moved.

A refusal ends in `<queue>.dead` as JSON: reason, at, node, encoding (utf-8 or base64), original. What fails otherwise
stays in hand and is tried again: where the store or the broker does not answer, all of it; where only the handler
fails, that message, without holding up others.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Generic, TypeVar

from celery import Celery
from kombu.entity import Queue
from pydantic import BaseModel, ValidationError

from coordinator import envelopes
from coordinator.errors import CoordinatorError, InvalidJob, SettingsError, StoreRefused, StoreUnavailable
from coordinator.ingress import Entry, Ingress, open_ingress

logger = logging.getLogger(__name__)

_HAND = 64
_LISTEN = 1.0
_LOOK = 2.0  # seconds between looks for dead nodes
_PAUSE, _LONGEST = 0.2, 5.0  # between tries, doubling
_REST = 0.5
_REASON = 500  # characters

M = TypeVar("M", bound=BaseModel)


class Refused(CoordinatorError):
    """Raised by a handler: this request can never be done; the reason is kept with it and shown to operators."""


class Inbox(Generic[M]):
    """One queue on one node: a thread beside the warden. `living`: the names of the nodes that live now."""

    def __init__(
        self,
        app: Celery,
        queue: str,
        model: type[M],
        handler: Callable[[M], None],
        node: str,
        living: Callable[[], Collection[str]],
    ) -> None:
        self.queue = queue
        self.node = node
        self._app = app
        self._model = model
        self._handler = handler
        self._living = living
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.run, name=f"inbox-{queue}", daemon=True)
        self._failures = 0
        self._later: dict[str, tuple[int, float]] = {}
        self._looked = float("-inf")
        self._say = _Sparingly()

    @cached_property
    def _ingress(self) -> Ingress:
        return open_ingress(self._app, self.queue, self.node)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """What is in hand stays there: this node takes it up again, or another one does once this one is gone."""
        self._stop.set()
        self._thread.join(2 * _LISTEN)

    def run(self) -> None:
        try:
            ingress = self._ingress
        except SettingsError as error:
            logger.error("inbox: %s", error)
            return
        while not self._stop.is_set():
            self._stop.wait(self.step())
        ingress.close()

    def step(self) -> float:
        """Handle what there is, or listen for it. Never raises.

        Returns the seconds to rest: as long as the work took, so that a flood takes half a core at most.
        """
        began = time.monotonic()
        try:
            self._adopt()
            worked = self._work()
        except Exception as error:
            self._ingress.close()
            pause = _backoff(self._failures)
            self._failures += 1
            self._say(logging.WARNING, f"{self._where}: {_short(error)}; trying again")
            return pause
        self._failures = 0
        return min(time.monotonic() - began, _REST) if worked else 0.0

    @property
    def _where(self) -> str:
        return f"inbox {self.queue} on {self.node}"

    def _adopt(self) -> None:
        if time.monotonic() - self._looked < _LOOK:
            return
        if others := self._ingress.others():
            for dead in sorted(others - set(self._living())):
                if number := self._ingress.adopt(dead):
                    logger.warning("%s: took over %d requests that %s had in hand", self._where, number, dead)
        self._looked = time.monotonic()

    def _work(self) -> bool:
        entries = self._ingress.take(_HAND)
        self._later = {entry.tag: self._later[entry.tag] for entry in entries if entry.tag in self._later}
        now = time.monotonic()
        due = [entry for entry in entries if entry.tag not in self._later or self._later[entry.tag][1] <= now]
        if not due and len(entries) < _HAND:
            self._ingress.listen(_LISTEN)
        elif not due:
            self._stop.wait(_LISTEN)
        for entry in due:
            if self._stop.is_set():
                break
            self._take_in(entry)
        return bool(due)

    def _take_in(self, entry: Entry) -> None:
        try:
            request = self._read(entry)
        except Exception as error:  # whatever a model's validators raise
            self._refuse(entry, error)
            return
        try:
            self._handler(request)
        except (Refused, InvalidJob) as error:
            self._refuse(entry, error)
        except (StoreUnavailable, StoreRefused):
            raise
        except Exception as error:
            tries = self._later.get(entry.tag, (0, 0.0))[0]
            self._later[entry.tag] = (tries + 1, time.monotonic() + 6 * _backoff(tries))
            self._say(logging.ERROR, f"{self._where}: the handler failed, trying again", error)
        else:
            self._ingress.settle(entry)

    def _read(self, entry: Entry) -> M:
        data, task_id = envelopes.read(entry.message, self.queue)
        if "id" in self._model.model_fields and data.get("id") is None:
            data["id"] = entry.tag if task_id is None else task_id
        return self._model.model_validate_json(json.dumps(data), strict=True)

    def _refuse(self, entry: Entry, error: Exception) -> None:
        try:
            encoding, original = "utf-8", entry.message.decode()
        except UnicodeDecodeError:
            encoding, original = "base64", base64.b64encode(entry.message).decode()
        about = {"reason": _short(error), "at": datetime.now(UTC).isoformat(), "node": self.node}
        self._ingress.refuse(entry, json.dumps(about | {"encoding": encoding, "original": original}))
        self._say(logging.WARNING, f"{self._where}: refused, now in {self.queue}.dead: {about['reason']}")


class _Sparingly:
    """At most ten log lines a minute; the first one after a silence says how many were left out."""

    def __init__(self) -> None:
        self._since = float("-inf")
        self._said = 0

    def __call__(self, level: int, text: str, error: Exception | None = None) -> None:
        if time.monotonic() - self._since >= 60:
            left_out, self._since, self._said = self._said - 10, time.monotonic(), 0
            if left_out > 0:
                text = f"{text} (and {left_out} more since the last line)"
        self._said += 1
        if self._said <= 10:
            logger.log(level, "%s", text, exc_info=error)


def register(app: Celery, queue: str, model: type[BaseModel]) -> None:
    """Check the model, and route `app.send_task(<queue>, kwargs={…})` to the queue, away from those of the workers.

    Raises SettingsError for a model that would let unknown fields pass.
    """
    if model.model_config.get("extra") != "forbid":
        raise SettingsError(f"inbox {queue!r}: {model.__name__} takes unknown fields; give it extra='forbid'")
    own = {queue: {"queue": Queue(queue, exchange="", routing_key=queue)}}

    def put(sender: Celery, **_: Any) -> None:
        routes = sender.conf.task_routes or ()
        sender.conf.task_routes = [own, *(routes if isinstance(routes, list | tuple) else (routes,))]

    if app.configured:
        put(app)
    else:
        app.on_after_configure.connect(put, weak=False)


def _backoff(failures: int) -> float:
    return float(min(_PAUSE * 2 ** min(failures, 10), _LONGEST))


def _short(error: Exception) -> str:
    """One printable line, whatever a sender put into it."""
    text = f"{type(error).__name__}: {error}" if not isinstance(error, CoordinatorError | ValueError) else str(error)
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False, include_context=False, include_input=False)
        text = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}" for one in found)
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)[:_REASON]
