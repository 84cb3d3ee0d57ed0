"""Celery's task events for jobs, under the job's own id and task name, so that Flower shows them as tasks.

A thread publishes them: a broker that hangs holds up no job. Batched: a flood sends five messages a second and process;
a lone job's events go out at once.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque

from celery import Celery
from celery.events import EventDispatcher
from kombu.utils.encoding import safe_repr

from coordinator.execution.attempt import Outcome
from coordinator.execution.claim import Claim

logger = logging.getLogger(__name__)

_PAUSE = 0.2  # seconds between two messages
_MOST = 10_000  # events that wait; beyond that the oldest are dropped


class TaskEvents:
    """The events of one process; `enabled` follows what the node's worker was told (-E, Flower)."""

    def __init__(self, app: Celery, hostname: str) -> None:
        self.enabled = False
        self._app = app
        self._hostname = hostname
        self._waiting: deque[tuple[str, dict[str, object]]] = deque(maxlen=_MOST)
        self._there, self._sent = threading.Event(), threading.Event()
        self._pid = 0

    def started(self, claim: Claim) -> None:
        if not self.enabled:
            return
        known = {"uuid": claim.id, "name": claim.task, "root_id": claim.id, "parent_id": None, "retries": claim.tries}
        shown = {
            "args": safe_repr(claim.args)[:1024],
            "kwargs": safe_repr(claim.kwargs)[:1024],
            "eta": None,
            "expires": None,
        }
        self._send("task-received", **known, **shown)
        self._send("task-started", uuid=claim.id)

    def ended(self, claim: Claim, outcome: Outcome, state: str) -> None:
        if not self.enabled:
            return
        if state == "succeeded":
            self._send("task-succeeded", uuid=claim.id, result=safe_repr(outcome.value)[:1024], runtime=outcome.runtime)
        elif state in ("cancelled", "expired"):
            self._send("task-revoked", uuid=claim.id, terminated=True, signum=None, expired=state == "expired")
        elif state not in ("ready", "parked"):
            kind = "task-retried" if state == "retrying" else "task-failed"
            error = outcome.error or (claim.error or {}).get("message")  # a rollback that went well: why it was needed
            self._send(kind, uuid=claim.id, exception=safe_repr(error)[:1024], traceback=outcome.traceback)

    def flush(self) -> None:
        """Give the thread a second for what waits: this process may end now."""
        if self._waiting:
            self._sent.wait(1.0)

    def _send(self, kind: str, **fields: object) -> None:
        self._waiting.append((kind, {"timestamp": time.time(), **fields}))
        self._sent.clear()
        if self._pid != os.getpid():
            self._pid = os.getpid()
            threading.Thread(target=self._run, name="coordinator-events", daemon=True).start()
        self._there.set()

    def _run(self) -> None:
        dispatcher: EventDispatcher | None = None
        while self._there.wait():
            self._there.clear()
            try:
                dispatcher = dispatcher or self._dispatcher()
                while self._waiting:
                    kind, fields = self._waiting.popleft()
                    dispatcher.send(kind, **fields)
                dispatcher.flush(errors=False, groups=True)
            except Exception as error:  # events are shown, nothing depends on them
                logger.warning("task events were not sent: %s", error)
                dispatcher = None
            if not self._waiting:
                self._sent.set()
            time.sleep(_PAUSE)

    def _dispatcher(self) -> EventDispatcher:
        connection = self._app.connection_for_write()
        options = {"buffer_group": {"task"}, "buffer_limit": 10**9}
        return self._app.events.Dispatcher(connection, hostname=self._hostname, **options)
