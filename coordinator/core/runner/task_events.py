"""Sends Celery's task events for jobs, with the job's id and task name, so that Flower shows jobs as tasks.

A background thread publishes the events, so that a broker that hangs delays no job. It sends the first event at once,
and later events in batches: at most five messages a second for each process.
"""

from __future__ import annotations

import logging
import time

from celery import Celery
from celery.events import EventDispatcher
from kombu.utils.encoding import safe_repr

from coordinator.core.fleet.status_file import StatusFile
from coordinator.core.jobs.hidden import Hidden
from coordinator.core.runner.attempt import Outcome
from coordinator.core.runner.claim import Claim
from coordinator.core.threads import SendingThread

logger = logging.getLogger(__name__)

Event = tuple[str, dict[str, object]]
_PAUSE = 0.2  # seconds between two messages to the broker, each with a batch of events
_MOST = 10_000  # queued events; beyond that the oldest are dropped


class TaskEvents(SendingThread[Event]):
    """Queues and publishes the task events of the jobs of one process. `hostname`: the worker's name in the events.
    `status_file`: says whether the worker sends task events (option -E or remote control `enable_events`); if not,
    none are queued.
    """

    def __init__(self, app: Celery, hostname: str, status_file: StatusFile) -> None:
        super().__init__("coordinator-events", _PAUSE, _MOST)
        self._app = app
        self._hostname = hostname
        self._status_file = status_file
        self._hidden: Hidden = app.coordinator._hidden
        self._dispatcher: EventDispatcher | None = None

    def started(self, claim: Claim) -> None:
        if not self._status_file.events:
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
        if not self._status_file.events:
            return
        if state == "succeeded":
            result = safe_repr(self._hidden.value(outcome.value))[:1024]
            self._note("task-succeeded", uuid=claim.id, result=result, runtime=outcome.runtime)
        elif state in ("cancelled", "expired"):
            self._note("task-revoked", uuid=claim.id, terminated=True, signum=None, expired=state == "expired")
        elif state not in ("ready", "parked"):
            kind = "task-retried" if state == "retrying" else "task-failed"
            # A rollback that succeeded has no error of its own: show the error for which the job was rolled back.
            error = outcome.error or (claim.error or {}).get("message")
            self._note(kind, uuid=claim.id, exception=safe_repr(error)[:1024], traceback=outcome.traceback)

    def _note(self, kind: str, **fields: object) -> None:
        self.put((kind, {"timestamp": time.time(), **fields}))

    def send(self, items: list[Event]) -> None:
        """Publish the events `items`, pairs of event type and fields. If the broker fails, log that and drop them."""
        try:
            dispatcher = self._dispatcher = self._dispatcher or self._connected()
            for kind, fields in items:
                dispatcher.send(kind, **fields)
            dispatcher.flush(errors=False, groups=True)
        except Exception as error:
            logger.warning("cannot send task events to the broker, and drops them: %s", error)
            self._dispatcher = None

    def _connected(self) -> EventDispatcher:
        connection = self._app.connection_for_write()
        options = {"buffer_group": {"task"}, "buffer_limit": 10**9}
        return self._app.events.Dispatcher(connection, hostname=self._hostname, **options)
