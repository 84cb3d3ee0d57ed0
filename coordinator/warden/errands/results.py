"""The duty of the errands that sends results and links that no runner sent."""

from __future__ import annotations

import logging
from collections.abc import Callable

from celery import Celery

from coordinator.lanes.client import LaneClient
from coordinator.runner.results import MOST_TRIES, JobEnd, coalesced_into, recorded_error, send
from coordinator.store.client import Store

logger = logging.getLogger(__name__)


class Results:
    """Sends overdue results and links of one app's jobs: the runner died, or the job ended without a runner."""

    def __init__(self, store: Store, lanes: LaneClient, app: Celery) -> None:
        self.store = store
        self.lanes = lanes
        self.app = app

    def step(self, get_on: Callable[[], None] = lambda: None) -> bool:
        """Send what one overdue job owes. Returns False where there is none."""
        overdue = self.store.step("notices_take", self.app.main, 1)
        if not overdue:
            return False
        job_id, tries = overdue[0][0].decode(), overdue[0][1]
        get_on()
        try:
            job = self.lanes.job(job_id)
            trace = (job.error or {}).get("traceback", "")
            end = JobEnd(job, self.lanes.spec(job_id), recorded_error(self.app, job), trace)
            send(self.app, coalesced_into(self.store, end))
        except Exception:
            if tries < MOST_TRIES:
                logger.exception("could not send the end of job %s (try %d); trying again later", job_id, tries)
                return True
            logger.exception("could not send the end of job %s in %d tries; giving up", job_id, tries)
        self.store.step("notices_sent", self.app.main, job_id)
        return True
