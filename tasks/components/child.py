"""The tasks of a child, a job in which a component works on one item and stores one event.

Before the work begins, the child stores its fence in the item store. From then on an earlier job, with a smaller fence,
can store no event for the item. Before the child stores the event, it checks its lease once more. If it may not store
the event, it stores the finished work in the table `orphans`, for operators.

If all attempts end without an event, as when their process was killed or reached its time limit, the job's rollback
stores the event, with the fence of its own claim.
"""

import logging
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Literal, TypedDict, TypeVar

from celery.app.task import Task
from celery.exceptions import SoftTimeLimitExceeded

from coordinator import Conflict, CurrentJob, LeaseLost
from coordinator.extending import Spec, delay_of, validation
from tasks import instants
from tasks.batches import Failure, Item, ItemLost, NewEvent, Report, UnknownItem
from tasks.components.declaration import Component, NotYet, Work
from tasks.components.registry import Errors, Registry, this_job

PATIENCE = 60.0
"""Seconds for which a child tries to store its event while the database or Redis is away. Then the work is repeated."""
LONG_PATIENCE = 3600.0
"""Seconds for which the rollback of a child tries the same."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
"""Seconds between two tries: at first, and at most."""

NO_OUTCOME = (Conflict, LeaseLost, ItemLost)
"""Exceptions after which an attempt stores no event."""
LOST = ("LeaseLost", "ItemLost")
"""Types of a job's error after which its rollback stores no event: another job has the item."""
KINDS = {
    "TimedOut": "timeout",
    "SoftTimeLimitExceeded": "timeout",
    "Expired": "timeout",
    "Cancelled": "cancelled",
    "SystemExit": "exception",
}

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


class ChildResult(TypedDict):
    """The result of a child. `failures`: how many failures the component found.

    `outcome`: `not yet` if the component raised NotYet; `not wanted` if the item no longer met the component's
    conditions, or another job has the item.
    """

    item: str
    outcome: Literal["succeeded", "failed", "not yet", "not wanted"]
    failures: int


def work(registry: Registry, task: Task, component: Component, item: str) -> ChildResult:
    """Run the component on the item, as the child's task. An infrastructure error leads to another attempt of the job;
    after the last attempt the job's rollback calls `record`.
    """
    job = this_job()
    infrastructure = registry.infrastructure_of(component)
    try:
        return _work(registry, component, item, job, infrastructure)
    except NO_OUTCOME:
        raise
    except infrastructure as error:
        spec: Spec = {} if component.retry_delay is None else {"retry_delay": validation.delays(component.retry_delay)}
        pause = delay_of(spec, task.request.retries, 1.0)
        logger.warning("%s on %s: %s", component.name, item, error)
        raise task.retry(exc=error, countdown=pause, max_retries=component.max_attempts - 1) from error


def _work(registry: Registry, component: Component, item: str, job: CurrentJob, infrastructure: Errors) -> ChildResult:
    started = instants.now()
    begun = _begin(registry, component, item, job)
    if begun is None:
        return _result_without_work(registry, item, job)
    work = Work(begun, job)
    try:
        report = Report.of(component.function(work) or (), component.max_results)
    except NotYet as reason:
        logger.info("%s on %s: not yet: %s", component.name, item, reason)
        return {"item": item, "outcome": "not yet", "failures": 0}
    except NO_OUTCOME:
        raise
    except infrastructure:
        raise
    except SoftTimeLimitExceeded as error:
        report = _one_failure(component, "timeout", _too_long(error), _traceback(error))
    except Exception as error:
        logger.exception("%s failed on %s", component.name, item)
        report = _one_failure(component, "exception", f"{type(error).__name__}: {error}", _traceback(error))
    report = replace(report, text=work.text, node=registry.coordinator.node)
    event = _event(component, begun, job, started, report, changed=work.is_changed)
    _store(registry, event, job, infrastructure, PATIENCE)
    return _result(event)


def record(registry: Registry, component: Component, item: str) -> ChildResult:
    """Store an event with the reason, as the rollback of a child whose attempts all ended without an event."""
    job, infrastructure = this_job(), registry.infrastructure_of(component)
    error = job.undoing.error if job.undoing else None
    if isinstance(error, dict) and error.get("type") in LOST:
        return {"item": item, "outcome": "not wanted", "failures": 0}
    begun = _retry_while_away(lambda: _begin(registry, component, item, job), infrastructure, LONG_PATIENCE)
    if begun is None:
        return _retry_while_away(lambda: _result_without_work(registry, item, job), infrastructure, LONG_PATIENCE)
    first = _retry_while_away(lambda: registry.coordinator.job(job.id).taken, infrastructure, LONG_PATIENCE)
    frames = str(error.get("traceback", "")) if isinstance(error, dict) else ""
    report = _one_failure(component, _kind_of(error), _reason_of(error), frames)
    event = _event(component, begun, job, first or instants.now(), report)
    _store(registry, event, job, infrastructure, LONG_PATIENCE)
    return _result(event)


def _kind_of(error: object) -> str:
    """Return the type of the failure to store, such as `timeout` or `lost`. `error`: the job's error, or a text."""
    kind = error.get("type") if isinstance(error, dict) else "lost"
    return KINDS.get(str(kind)) or ("lost" if kind in (None, "Lost", "lost") else "infrastructure")


def _reason_of(error: object) -> str:
    """Return the description of the failure to store. `error`: the error of the job, or a text.

    For a cancelled job, the description names the operator.
    """
    if not isinstance(error, dict):
        return str(error)
    message = str(error.get("message") or error.get("type"))
    if error.get("type") == "SystemExit":
        return f"SystemExit: {message}"
    return f"{error.get('by') or 'somebody'} cancelled it: {message}" if error.get("type") == "Cancelled" else message


def _too_long(error: SoftTimeLimitExceeded) -> str:
    return f"it took longer than {error.args[0]} s" if error.args else "it took longer than its soft time limit"


def _begin(registry: Registry, component: Component, item: str, job: CurrentJob) -> Item | None:
    """Store the job's fence and return the item; None if it is unknown or no longer meets the component's `wanted`."""
    try:
        return registry.items.begin(component.name, item, fence=job.fence, wanted=component.wanted)
    except UnknownItem:
        return None


def _result_without_work(registry: Registry, item: str, job: CurrentJob) -> ChildResult:
    """Return the result for an item that no longer meets the component's conditions.

    If an earlier attempt of this job has stored the event, that is the result of that attempt; else `not wanted`.
    """
    own = [event for event in registry.items.events(item) if event.attempt.startswith(f"{job.id}#")]
    if not own:
        return {"item": item, "outcome": "not wanted", "failures": 0}
    return {"item": item, "outcome": _outcome(own[-1].success), "failures": own[-1].report.found}


def _store(registry: Registry, event: NewEvent, job: CurrentJob, infrastructure: Errors, patience: float) -> None:
    """Store the event. If another job has the item, store the event as an orphan and raise LeaseLost or ItemLost.

    `patience`: seconds for which to try again while the database or Redis is away.
    """

    def append() -> None:
        job.check()
        registry.items.append(event)

    try:
        _retry_while_away(append, infrastructure, patience)
    except (LeaseLost, ItemLost) as lost:
        logger.warning("%s on %s: the finished work is not stored: %s", event.component, event.item, lost)
        _retry_while_away(lambda: registry.items.keep_orphan(event), infrastructure, PATIENCE)
        raise


def _retry_while_away(act: Callable[[], Result], infrastructure: Errors, patience: float) -> Result:
    """Call `act`, and again while it raises one of the errors in `infrastructure`, and return its result.

    After `patience` seconds, raises the error.
    """
    until, pause = time.monotonic() + patience, FIRST_PAUSE
    while True:
        try:
            return act()
        except infrastructure as away:
            if time.monotonic() + pause > until:
                raise
            why = str(away).splitlines()[0] if str(away) else type(away).__name__
            logger.warning("the database or Redis is away, trying again: %s", why)
            time.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)


def _event(
    component: Component, item: Item, job: CurrentJob, started: datetime, report: Report, *, changed: bool = False
) -> NewEvent:
    return NewEvent(
        item=item.id,
        type=component.event,
        success=not report.found,
        component=component.name,
        version=component.version,
        attempt=f"{job.id}#{job.fence}",
        fence=job.fence,
        revision_read=item.revision,
        started=started,
        ended=instants.now(),
        report=report,
        changed=changed,
    )


def _one_failure(component: Component, kind: str, description: str, details: str = "") -> Report:
    return Report.of([Failure("", kind, component.name, description[:4096], details)])


def _traceback(error: Exception) -> str:
    return "".join(traceback.format_exception(error, limit=-20))[-16384:]


def _result(event: NewEvent) -> ChildResult:
    return {"item": event.item, "outcome": _outcome(event.success), "failures": event.report.found}


def _outcome(success: bool) -> Literal["succeeded", "failed"]:
    return "succeeded" if success else "failed"
