"""Once Redis has accepted a job's outcome, others hear of it: its result goes to the backend, its links are published.

Redis notes each job whose result and links are owed until a runner or a warden has sent them. Another node of the app
sends those of a dead one. So each is sent at least once.
"""

from __future__ import annotations

import logging

from celery import Celery, states
from celery.app.task import Context
from celery.backends.base import DisabledBackend

from coordinator.jobs.record import Job
from coordinator.jobs.spec import Cause, Spec
from coordinator.lanes.lanes import Lanes
from coordinator.store.client import Store

logger = logging.getLogger(__name__)


def has_results(app: Celery) -> bool:
    return not isinstance(app.backend, DisabledBackend)


def send(app: Celery, job: Job, spec: Spec, error: BaseException | None, trace: str = "") -> None:
    """Store the result and publish the links of a job that is over; `error` where it did not succeed."""
    task = app.tasks.get(job.task)
    ignored = spec.get("ignore_result") or (task is not None and task.ignore_result)
    store = has_results(app) and not ignored
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


def log_double_fault(job_id: str, key: str, error: Cause | None, fault: Cause | None) -> None:
    """Log one ERROR line with both causes. The process that saw the rollback fail calls it."""
    logger.error(
        "double fault: job %s (%s) failed: %s; its rollback failed too: %s", job_id, key, _brief(error), _brief(fault)
    )


def _brief(error: Cause | None) -> str:
    return f"{error.get('type')}: {error.get('message')}" if error else "None"


class Results:
    """Sends the results and links that no runner of this app has sent: it died, or the job ended without one."""

    def __init__(self, store: Store, lanes: Lanes, app: Celery) -> None:
        self.store = store
        self.lanes = lanes
        self.app = app

    def step(self) -> int:
        """Send what is overdue. Returns for how many jobs."""
        sent = 0
        for job_id in [raw.decode() for raw in self.store.step("notices_take", self.app.main)]:
            try:
                job = self.lanes.job(job_id)
                trace = (job.error or {}).get("traceback", "")
                send(self.app, job, self.lanes.spec(job_id), recorded_error(self.app, job), trace)
            except Exception:
                logger.exception("could not tell the end of job %s; once more in 10 s", job_id)
                continue
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
