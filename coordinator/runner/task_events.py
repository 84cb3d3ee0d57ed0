"""Sends Celery's task events for jobs, with the job's id and task name, so that Flower shows jobs as tasks.

A thread publishes them, so that a broker that hangs delays no job. Events are batched: a process sends at most five
messages a second, and a lone job's events at once.
"""

from __future__ import annotations

import logging
import time

from celery import Celery
from celery.events import EventDispatcher
from kombu.utils.encoding import safe_repr

from coordinator.fleet.board import Board
from coordinator.jobs.hidden import Hidden
from coordinator.runner.attempt import Outcome
from coordinator.runner.claim import Claim
from coordinator.threads import SendingThread

logger = logging.getLogger(__name__)

Event = tuple[str, dict[str, object]]
_PAUSE = 0.2  # seconds between two messages
_MOST = 10_000  # queued events; beyond that the oldest are dropped


class TaskEvents(SendingThread[Event]):
    """The events of one process. The board says whether its worker sends task events (-E, remote control)."""

    def __init__(self, app: Celery, hostname: str, board: Board) -> None:
        super().__init__("coordinator-events", _PAUSE, _MOST)
        self._app = app
        self._hostname = hostname
        self._board = board
        self._hidden: Hidden = app.coordinator._hidden
        self._dispatcher: EventDispatcher | None = None

    def started(self, claim: Claim) -> None:
        if not self._board.events:
            return
        message = claim.spec.get("message", {})
        known = {"uuid": claim.id, "name": claim.task, "root_id": claim.id, "parent_id": None, "retries": claim.tries}
        args, kwargs = self._hidden.call(claim.task, claim.args, claim.kwargs)
        shown = {
            "args": message.get("argsrepr") or safe_repr(args)[:1024],
            "kwargs": message.get("kwargsrepr") or safe_repr(kwargs)[:1024],
            "eta": message.get("eta"),
            "expires": message.get("expires"),
        }
        self._note("task-received", **known, **shown)
        self._note("task-started", uuid=claim.id)

    def ended(self, claim: Claim, outcome: Outcome, state: str) -> None:
        if not self._board.events:
            return
        if state == "succeeded":
            result = safe_repr(self._hidden.value(outcome.value))[:1024]
            self._note("task-succeeded", uuid=claim.id, result=result, runtime=outcome.runtime)
        elif state in ("cancelled", "expired"):
            self._note("task-revoked", uuid=claim.id, terminated=True, signum=None, expired=state == "expired")
        elif state not in ("ready", "parked"):
            kind = "task-retried" if state == "retrying" else "task-failed"
            error = outcome.error or (claim.error or {}).get("message")  # a rollback that went well: why it was needed
            self._note(kind, uuid=claim.id, exception=safe_repr(error)[:1024], traceback=outcome.traceback)

    def _note(self, kind: str, **fields: object) -> None:
        self.put((kind, {"timestamp": time.time(), **fields}))

    def send(self, items: list[Event]) -> None:
        """Publish the events; those of a broker that fails are lost, since nothing depends on them."""
        try:
            dispatcher = self._dispatcher = self._dispatcher or self._connected()
            for kind, fields in items:
                dispatcher.send(kind, **fields)
            dispatcher.flush(errors=False, groups=True)
        except Exception as error:
            logger.warning("task events were not sent: %s", error)
            self._dispatcher = None

    def _connected(self) -> EventDispatcher:
        connection = self._app.connection_for_write()
        options = {"buffer_group": {"task"}, "buffer_limit": 10**9}
        return self._app.events.Dispatcher(connection, hostname=self._hostname, **options)
