"""Once Redis has accepted a job's outcome, others hear of it: its result goes to the backend, its links are published.

Redis notes each job whose result and links are owed until a runner or the errands of a node have sent them. Another
node of the app sends those of a dead one. So each is sent at least once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from celery import Celery, states
from celery.app.task import Context
from celery.backends.base import DisabledBackend

from coordinator.jobs.record import Job
from coordinator.jobs.spec import Spec
from coordinator.lanes.lanes import Lanes
from coordinator.store.client import Store

logger = logging.getLogger(__name__)

MOST_TRIES = 40  # in about 6 hours: functions/steps/job.lua


def has_results(app: Celery) -> bool:
    return not isinstance(app.backend, DisabledBackend)


def is_ignored(app: Celery, task: str, spec: Spec) -> bool:
    """Does nobody want the result of a job that ends with this task?"""
    known = app.tasks.get(task)
    return bool(spec.get("ignore_result") or (known is not None and known.ignore_result))


def send(app: Celery, job: Job, spec: Spec, error: BaseException | None, trace: str = "") -> None:
    """Store the result and publish the links of a job that is over; `error` where it did not succeed."""
    store = has_results(app) and not is_ignored(app, job.task, spec)
    request = Context(
        id=job.id,
        task=job.task,
        args=job.args,
        kwargs=job.kwargs,
        hostname=job.node,
        root_id=job.id,
        ignore_result=not store,
        errbacks=spec.get("link_error"),
        delivery_info={},
    )
    if job.state == "succeeded":
        for link in spec.get("link") or ():
            signature = app.signature(link) if isinstance(link, dict) else link
            signature.apply_async((job.result,), parent_id=job.id, root_id=job.id)
        if store:
            app.backend.store_result(job.id, job.result, states.SUCCESS, request=request)
    elif job.state in ("cancelled", "expired"):
        app.backend.mark_as_revoked(job.id, job.state, request=request, store_result=store)
    else:
        app.backend.mark_as_failure(job.id, error, trace, request=request, store_result=store, call_errbacks=True)


class Results:
    """Sends the results and links that no runner of this app has sent: it died, or the job ended without one."""

    def __init__(self, store: Store, lanes: Lanes, app: Celery) -> None:
        self.store = store
        self.lanes = lanes
        self.app = app

    def step(self, get_on: Callable[[], None] = lambda: None) -> int:
        """Send what is overdue, one at a time, and call `get_on` before each. Returns for how many jobs."""
        sent = 0
        while found := self.store.step("notices_take", self.app.main, 1):
            job_id, tries = found[0][0].decode(), found[0][1]
            get_on()
            try:
                job = self.lanes.job(job_id)
                trace = (job.error or {}).get("traceback", "")
                send(self.app, job, self.lanes.spec(job_id), recorded_error(self.app, job), trace)
            except Exception:
                if tries < MOST_TRIES:
                    logger.exception("could not tell the end of job %s (try %d); once more later", job_id, tries)
                    continue
                logger.exception("could not tell the end of job %s in %d tries: nobody tries again", job_id, tries)
            self.told([job_id])
            sent += 1
        return sent

    def told(self, job_ids: list[str]) -> None:
        self.store.step("notices_told", self.app.main, *job_ids)


def recorded_error(app: Celery, job: Job) -> BaseException | None:
    """The exception of a record, as Celery's backends make one from what they keep."""
    if job.error is None:
        return None
    error = job.error
    kept = {
        "exc_type": error.get("type", "Exception"),
        "exc_module": error.get("module"),
        "exc_message": [error.get("message")],
    }
    try:
        found = app.backend.exception_to_python(kept)
    except Exception:
        found = None
    return found if isinstance(found, BaseException) else RuntimeError(str(error.get("message")))
