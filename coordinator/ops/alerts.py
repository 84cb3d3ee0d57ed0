"""Raises alerts: logs each alert and sends the signal `alert_raised`. The maintenance process of each node does this.

When a job fails for good, is held, or has a double fault, the Redis function notes that in the set `troubles:<app>`.
No Redis function runs while jobs wait, so every 30 seconds one of the nodes scans for long waits, and for tasks that
no node has.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import cast

from celery import Celery

from coordinator.core.alert import Alert, Kind, alert_raised
from coordinator.core.jobs.record import Job
from coordinator.core.jobs.spec import ErrorRecord
from coordinator.core.lanes.client import LaneClient
from coordinator.core.store.client import Store
from coordinator.core.store.steps import trouble_take
from coordinator.core.store.times import instant, milliseconds, span_text
from coordinator.errors import UnknownJob
from coordinator.ops.diagnosis.fleet import unserved
from coordinator.ops.diagnosis.snapshot import Snapshot
from coordinator.ops.diagnosis.summary import REASONS, why_summary

logger = logging.getLogger(__name__)

SCAN_PAUSE = 30.0  # seconds between two scans for long waits
_AGAIN = 3600.0  # seconds between two alerts about one wait; also how long an alert is sent again if a handler fails
_WAITS = {
    "slot": "a free slot",
    "lane": "its turn in its lane",
    "quota": "a quota that it uses",
    "paused": "its lane, which is paused",
}
_SAYS = {"held": "is held for an operator", "failed": "failed for good", "double_fault": "failed"}


class AlertReports:
    """Raises the alerts about the jobs of one app and, in turns with the other nodes, the alerts about long waits.

    `pause`: seconds between two scans for long waits.
    """

    def __init__(self, store: Store, lanes: LaneClient, app: Celery, pause: float = SCAN_PAUSE) -> None:
        self.store, self.lanes, self.app = store, lanes, app
        self._pause, self._scanned_at = pause, 0.0

    def step(self, heartbeat: Callable[[], None] = lambda: None) -> None:
        # `trouble_take` returns an entry again after 30 s unless ZREM removes it, so that a killed node loses no alert.
        while entry := trouble_take(self.store, self.app.main):
            heartbeat()
            kind, at, job_id = entry.split(" ", 2)
            alert = self._of_job(cast(Kind, kind), instant(int(at)), job_id)
            if alert is None or self._raise(alert) or self.store.now() - int(at) > milliseconds(_AGAIN):
                self.store.read("ZREM", self.store.key("troubles", self.app.main), entry)
        if time.monotonic() - self._scanned_at >= self._pause:
            self._scanned_at = time.monotonic()
            # The key keeps other nodes from scanning. With a ttl of the whole pause it could stop our next scan, too.
            command = ("SET", self.store.key("looked"), 1, "NX", "PX", milliseconds(self._pause * 0.9))
            for alert in self._of_waits() if self.store.read(*command) else ():
                heartbeat()
                self._raise_hourly(alert)

    def _of_job(self, kind: Kind, at: datetime, job_id: str) -> Alert | None:
        with suppress(UnknownJob):
            job = self.lanes.job(job_id)
            message = f"{_named(job)} {_SAYS[kind]}{_why(job.error)}"
            if kind == "double_fault":
                message = f"double fault: {message}; its rollback failed, too{_why(job.fault)}"
            return Alert(kind, message, job_id, job.key, job.task, at)
        return None

    def _of_waits(self) -> Iterator[Alert]:
        now, snapshot = datetime.now(UTC), Snapshot(self.lanes)
        for row in why_summary(snapshot).rows:
            awaited = _WAITS.get(REASONS.get(row.code, ""))
            if awaited and row.example and (row.longest or 0) > self.store.settings.long_wait:
                with suppress(UnknownJob):  # the job has ended, and its record is gone
                    job = self.lanes.job(row.example)
                    message = f"{_named(job)} has waited for {awaited}"
                    message += f" for {span_text(row.longest or 0)}"
                    yield Alert("waits", message, job.id, job.key, job.task, now)
        for task, finding in unserved(snapshot):
            yield Alert("no_node", f"{finding.thing}: {finding.message}", "", "", task, now)

    def _raise_hourly(self, alert: Alert) -> None:
        """Raise an alert about a wait, unless some node has raised the same alert within the last hour.

        If this node dies before the alert is noted in Redis, another node raises the alert again.
        """
        raised = self.store.key("told", alert.kind, alert.job_id or alert.task)
        if not self.store.read("EXISTS", raised) and self._raise(alert):
            self.store.read("SET", raised, 1, "PX", milliseconds(_AGAIN))

    def _raise(self, alert: Alert) -> bool:
        """Log an alert and send the signal `alert_raised`. Returns False where a signal handler raised an error."""
        level = logging.ERROR if alert.kind == "double_fault" else logging.WARNING
        logger.log(level, "alert (%s): %s", alert.kind, alert.message)
        answers = alert_raised.send(sender=self.app, alert=alert)  # `send` returns exceptions of handlers
        return not any(isinstance(answer, Exception) for _, answer in answers)


def _named(job: Job) -> str:
    """Return how an alert names a job: `job 7f3 of shop.work (lane order/42)`."""
    return f"job {job.id} of {job.task}" + (f" (lane {job.key})" if job.keys else "")


def _why(error: ErrorRecord | None) -> str:
    return f": {error.get('type')}: {error.get('message')}" if error else ""
