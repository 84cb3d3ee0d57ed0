"""The duty of the errands that tells of trouble: it logs each, and sends the signal `trouble_seen`.

Steps note in `troubles:<app>` that a job failed for good, is held, or had a double fault. No step runs while jobs
wait: so one node of all looks now and then which have waited for long, and whether no node has the task of some.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import cast

from celery import Celery

from coordinator.diagnosis.fleet import unserved
from coordinator.diagnosis.snapshot import Snapshot
from coordinator.diagnosis.summary import REASONS, why_summary
from coordinator.errors import UnknownJob
from coordinator.jobs.spec import ErrorRecord
from coordinator.lanes.client import LaneClient
from coordinator.store.client import Store
from coordinator.store.times import instant, milliseconds, span_text
from coordinator.trouble import Kind, Trouble, trouble_seen

logger = logging.getLogger(__name__)

LOOK = 30.0  # seconds between two looks at what waits
_AGAIN = 3600.0  # seconds after which a wait is told again, and for which a handler that raises is called again
_WAITS = {"slot": "a free slot", "lane": "its turn in its lane", "paused": "its lane, which is paused"}
_SAYS = {"held": "is held for an operator", "failed": "failed for good", "double_fault": "failed"}


class TroubleReports:
    """Tells of the troubles of one app's jobs, and in turns with the other nodes of those that wait."""

    def __init__(self, store: Store, lanes: LaneClient, app: Celery, look: float = LOOK) -> None:
        self.store, self.lanes, self.app = store, lanes, app
        self._look, self._looked = look, 0.0

    def step(self, get_on: Callable[[], None] = lambda: None) -> None:
        while taken := self.store.step("trouble_take", self.app.main):
            get_on()
            member = taken.decode()
            kind, at, job_id = member.split(" ", 2)
            trouble = self._of_job(cast(Kind, kind), instant(int(at)), job_id)
            if trouble is None or self._tell(trouble) or self.store.now() - int(at) > milliseconds(_AGAIN):
                self.store.read("ZREM", self.store.key("troubles", self.app.main), member)
        if time.monotonic() - self._looked >= self._look:
            self._looked = time.monotonic()
            command = ("SET", self.store.key("looked"), 1, "NX", "PX", milliseconds(self._look * 0.9))
            for trouble in self._of_waits() if self.store.read(*command) else ():
                get_on()
                self._tell_once(trouble)

    def _of_job(self, kind: Kind, at: datetime, job_id: str) -> Trouble | None:
        with suppress(UnknownJob):
            job = self.lanes.job(job_id)
            message = f"job {job_id} of {job.task} (lane {job.key}) {_SAYS[kind]}{_why(job.error)}"
            if kind == "double_fault":
                message = f"double fault: {message}; its rollback failed, too{_why(job.fault)}"
            return Trouble(kind, message, job_id, job.key, job.task, at)
        return None

    def _of_waits(self) -> Iterator[Trouble]:
        now, look = datetime.now(UTC), Snapshot(self.lanes)
        for row in why_summary(look).rows:
            what = _WAITS.get(REASONS.get(row.code, ""))
            if what and row.example and (row.longest or 0) > self.store.settings.long_wait:
                with suppress(UnknownJob):  # it is over
                    job = self.lanes.job(row.example)
                    message = f"job {job.id} of {job.task} (lane {job.key}) has waited for {what}"
                    message += f" for {span_text(row.longest or 0)}"
                    yield Trouble("waits", message, job.id, job.key, job.task, now)
        for task, finding in unserved(look):
            yield Trouble("no_node", f"{finding.thing}: {finding.message}", "", "", task, now)

    def _tell_once(self, trouble: Trouble) -> None:
        """Tell it unless some node has within the hour. A node that dies between leaves it to the next one."""
        reported = self.store.key("told", trouble.kind, trouble.job_id or trouble.task)
        if not self.store.read("EXISTS", reported) and self._tell(trouble):
            self.store.read("SET", reported, 1, "PX", milliseconds(_AGAIN))

    def _tell(self, trouble: Trouble) -> bool:
        """False where a handler raised."""
        level = logging.ERROR if trouble.kind == "double_fault" else logging.WARNING
        logger.log(level, "trouble (%s): %s", trouble.kind, trouble.message)
        answers = trouble_seen.send(sender=self.app, trouble=trouble)
        return not any(isinstance(answer, Exception) for _, answer in answers)


def _why(error: ErrorRecord | None) -> str:
    return f": {error.get('type')}: {error.get('message')}" if error else ""
