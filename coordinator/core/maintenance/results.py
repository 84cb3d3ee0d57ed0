"""The maintenance duty that stores results and publishes links of ended jobs where no runner has done so."""

from __future__ import annotations

import logging
from collections.abc import Callable

from celery import Celery

from coordinator.core.lanes.client import LaneClient
from coordinator.core.runner.results import MOST_TRIES, JobEnd, coalesced_into, recorded_error, send
from coordinator.core.store.client import Store
from coordinator.core.store.steps import notices_sent, notices_take

logger = logging.getLogger(__name__)


class Results:
    """Sends overdue results and links of the jobs of one app: of jobs whose runner died, or that ended without one."""

    def __init__(self, store: Store, lanes: LaneClient, app: Celery) -> None:
        self.store = store
        self.lanes = lanes
        self.app = app

    def step(self, heartbeat: Callable[[], None] = lambda: None) -> bool:
        """Send the result and links of one job for which they are overdue. Return False if there is none."""
        overdue = notices_take(self.store, self.app.main, 1)
        if not overdue:
            return False
        job_id, tries = overdue[0][0].decode(), overdue[0][1]
        heartbeat()
        try:
            job = self.lanes.job(job_id)
            trace = (job.error or {}).get("traceback", "")
            spec, error = self.lanes.spec(job_id), recorded_error(self.app, job)
            end = JobEnd(job, spec, error, trace, asked_only=job.collects is not None)
            send(self.app, coalesced_into(self.store, end))
        except Exception:
            if tries < MOST_TRIES:
                logger.exception("cannot send result and links of job %s (try %d); trying again later", job_id, tries)
                return True
            logger.exception("cannot send result and links of job %s; giving up after %d tries", job_id, tries)
        notices_sent(self.store, self.app.main, job_id)
        return True
