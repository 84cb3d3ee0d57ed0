"""Celery's task events for jobs, under the job's own id and task name, so that Flower shows them as tasks.

Batched: a flood sends five messages a second and process; a lone job's events go out at once.
"""

from __future__ import annotations

import logging
import os
import threading
import time

from celery import Celery
from celery.events import EventDispatcher
from kombu.utils.encoding import safe_repr

from coordinator.execution.attempt import Outcome
from coordinator.execution.claim import Claim

logger = logging.getLogger(__name__)

_PAUSE = 0.2


class TaskEvents:
    """The events of one process; `enabled` follows what the node's worker was told (-E, Flower)."""

    def __init__(self, app: Celery, hostname: str) -> None:
        self.enabled = False
        self._app = app
        self._hostname = hostname
        self._dispatcher: EventDispatcher | None = None
        self._pid = 0
        self._flushed = 0.0
        self._lock = threading.Lock()

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
        self._flush_soon()

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
        self._flush_soon()

    def flush(self) -> None:
        with self._lock:
            self._flush()

    def _send(self, kind: str, **fields: object) -> None:
        with self._lock:
            if self._dispatcher is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._dispatcher = self._app.events.Dispatcher(
                    self._app.connection_for_write(), hostname=self._hostname, buffer_group={"task"}, buffer_limit=10**9
                )
            self._dispatcher.send(kind, **fields)

    def _flush_soon(self) -> None:
        """At once after a pause, else by a timer: the next job may take long."""
        with self._lock:
            wait = self._flushed + _PAUSE - time.monotonic()
            if wait <= 0:
                self._flush()
            elif self._flushed > 0:
                self._flushed = -1.0
                timer = threading.Timer(wait, self.flush)
                timer.daemon = True
                timer.start()

    def _flush(self) -> None:
        self._flushed = time.monotonic()
        if self._dispatcher is None:
            return
        try:
            self._dispatcher.flush(errors=False, groups=True)
        except Exception as error:  # events are shown, nothing depends on them
            logger.warning("task events were not sent: %s", error)
            self._dispatcher = None
