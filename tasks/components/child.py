"""One component works on one item, and stores one event.

The fence of the job guards the event. The store notes it before the work begins, so whatever ran before stores nothing
any more. The lease is checked once more before the event is stored. Work that was finished, and may not be stored, is
kept as an orphan, to be looked at.

An attempt that ends without a word, since its process was killed or ran out of time, is told by the job's rollback:
it has the item's place, and a fence of its own.
"""

import logging
import time
from dataclasses import replace
from datetime import datetime
from typing import Literal, TypedDict

from celery.app.task import Task
from celery.exceptions import SoftTimeLimitExceeded

from coordinator import Conflict, CoordinatorError, CurrentJob, LeaseLost, current_job
from coordinator.jobs.backoff import delay_of
from coordinator.jobs.spec import Spec
from coordinator.jobs.validation import delays
from tasks.batches import Failure, Item, ItemLost, NewEvent, Report, UnknownItem
from tasks.components.declaration import Component, NotYet, Work
from tasks.components.registry import Errors, Registry, UnknownComponent
from tasks.member_node import instants

PATIENCE = 60.0
"""For so many seconds a child tries to store its event while the store is away. Then its work has to be done again."""
LONG_PATIENCE = 3600.0
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0

PASSING = (Conflict, LeaseLost, ItemLost)
LOST = ("LeaseLost", "ItemLost")
KINDS = {
    "TimedOut": "timeout",
    "SoftTimeLimitExceeded": "timeout",
    "Expired": "timeout",
    "Cancelled": "cancelled",
    "SystemExit": "exception",
}

logger = logging.getLogger(__name__)


class Told(TypedDict):
    """The end of a child, as its run lists it. `not wanted`: somebody else did it, or the item was stopped."""

    item: str
    outcome: Literal["succeeded", "failed", "not yet", "not wanted"]
    failures: int


def work(here: Registry, task: Task, name: str, item: str) -> Told:
    """Infrastructure errors ask for another attempt, until none is left; then `record` tells of the last one."""
    component, job = _component(here, name), _job()
    infrastructure = here.infrastructure_of(component)
    try:
        return _work(here, component, item, job, infrastructure)
    except PASSING:
        raise
    except infrastructure as error:
        spec: Spec = {} if component.retry_delay is None else {"retry_delay": delays(component.retry_delay)}
        pause = delay_of(spec, task.request.retries, 1.0)
        logger.warning("%s on %s: %s", name, item, error)
        raise task.retry(exc=error, countdown=pause, max_retries=component.max_attempts - 1) from error


def _work(here: Registry, component: Component, item: str, job: CurrentJob, infrastructure: Errors) -> Told:
    started = instants.now()
    found = _begin(here, component, item, job)
    if found is None:
        return _left_alone(here, item, job)
    work = Work(found, job)
    try:
        report = Report.of(component.function(work) or (), component.max_results)
    except NotYet as reason:
        logger.info("%s on %s: not yet: %s", component.name, item, reason)
        return {"item": item, "outcome": "not yet", "failures": 0}
    except PASSING:
        raise
    except infrastructure:
        raise
    except SoftTimeLimitExceeded as error:
        report = _one_failure(component, "timeout", _too_long(error))
    except Exception as error:
        logger.exception("%s failed on %s", component.name, item)
        report = _one_failure(component, "exception", f"{type(error).__name__}: {error}")
    report = replace(report, text=work.text)
    event = _event(component, found, job, started, report, changed=work.is_changed)
    _store(here, event, job, infrastructure, PATIENCE)
    return _told(event)


def record(here: Registry, name: str, item: str) -> Told:
    """The rollback of a child whose attempts are over without an event: store one that says why."""
    component, job, started = _component(here, name), _job(), instants.now()
    infrastructure = here.infrastructure_of(component)
    error = job.undoing.error if job.undoing else None
    if isinstance(error, dict) and error.get("type") in LOST:
        return {"item": item, "outcome": "not wanted", "failures": 0}
    until = time.monotonic() + LONG_PATIENCE
    while True:
        try:
            found = _begin(here, component, item, job)
            if found is None:
                return _left_alone(here, item, job)
            break
        except infrastructure as away:
            _pause(away, until, LONGEST_PAUSE / 5)
    event = _event(component, found, job, started, _one_failure(component, _kind_of(error), _why(error)))
    _store(here, event, job, infrastructure, LONG_PATIENCE)
    return _told(event)


def _kind_of(error: object) -> str:
    """Why nobody stored an event: the job's own error says it."""
    kind = error.get("type") if isinstance(error, dict) else "lost"
    return KINDS.get(str(kind)) or ("lost" if kind in (None, "Lost", "lost") else "infrastructure")


def _why(error: object) -> str:
    """The same in words. An operator's act has a name, and not always a reason."""
    if not isinstance(error, dict):
        return str(error)
    message = str(error.get("message") or error.get("type"))
    if error.get("type") == "SystemExit":
        return f"SystemExit: {message}"
    return f"{error.get('by') or 'somebody'} cancelled it: {message}" if error.get("type") == "Cancelled" else message


def _too_long(error: SoftTimeLimitExceeded) -> str:
    return f"it took longer than {error.args[0]} s" if error.args else "it took longer than its soft time limit"


def _begin(here: Registry, component: Component, item: str, job: CurrentJob) -> Item | None:
    """The item, once the store knows our fence; None: it is not wanted any more."""
    try:
        return here.items.begin(component.name, item, fence=job.fence, wanted=component.wanted)
    except UnknownItem:
        return None


def _left_alone(here: Registry, item: str, job: CurrentJob) -> Told:
    """Somebody else did it, or stopped the item; or this job did it itself, in an attempt that died after its event."""
    mine = [one for one in here.items.events(item) if one.attempt.startswith(f"{job.id}#")]
    if not mine:
        return {"item": item, "outcome": "not wanted", "failures": 0}
    return {"item": item, "outcome": _outcome(mine[-1].success), "failures": mine[-1].report.found}


def _store(here: Registry, event: NewEvent, job: CurrentJob, infrastructure: Errors, patience: float) -> None:
    """Store the event, as long as the item is ours. Raises LeaseLost or ItemLost: the event is kept as an orphan."""
    until, pause = time.monotonic() + patience, FIRST_PAUSE
    while True:
        try:
            job.check()
            here.items.append(event)
            return
        except (LeaseLost, ItemLost) as lost:
            logger.warning("%s on %s: finished, and not stored: %s", event.component, event.item, lost)
            _keep_orphan(here, event, infrastructure)
            raise
        except infrastructure as away:
            _pause(away, until, pause)
            pause = min(LONGEST_PAUSE, pause * 2)


def _keep_orphan(here: Registry, event: NewEvent, infrastructure: Errors) -> None:
    until, pause = time.monotonic() + PATIENCE, FIRST_PAUSE
    while True:
        try:
            return here.items.keep_orphan(event)
        except infrastructure as away:
            _pause(away, until, pause)
            pause = min(LONGEST_PAUSE, pause * 2)


def _pause(away: BaseException, until: float, seconds: float) -> None:
    """Raises `away` itself when the time is over."""
    if time.monotonic() + seconds > until:
        raise away
    logger.warning("asking again: %s", str(away).splitlines()[0] if str(away) else type(away).__name__)
    time.sleep(seconds)


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


def _one_failure(component: Component, kind: str, description: str) -> Report:
    return Report.of([Failure("", kind, component.name, description[:4096])])


def _told(event: NewEvent) -> Told:
    return {"item": event.item, "outcome": _outcome(event.success), "failures": event.report.found}


def _outcome(success: bool) -> Literal["succeeded", "failed"]:
    return "succeeded" if success else "failed"


def _component(here: Registry, name: str) -> Component:
    """Another node may know a component that this one does not, while declarations change."""
    try:
        return here[name]
    except UnknownComponent as error:
        raise Conflict(str(error)) from error


def _job() -> CurrentJob:
    job = current_job()
    if job is None:
        raise CoordinatorError("a component works only as a job: coordinator components run NAME")
    return job
