"""Django's TaskResult, made of the record of a job."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from coordinator.coordinator import Coordinator
from coordinator.core.jobs.record import Job, callers
from coordinator.core.jobs.spec import ErrorRecord
from coordinator.core.jobs.states import State
from coordinator.django.framework import Task, TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus
from coordinator.errors import InvalidJob, UnknownJob

HEADER = "django_task"  # header of a job: in what the enqueued task differs from the declared one (`using`)

_RUNNING: tuple[State, ...] = ("running", "parked", "rolling_back")
_LOST = "coordinator.errors.JobFailed"  # class of an end without an exception: a lost process, a cancel, an expiry


def new_id() -> str:
    """A UUID of version 7, which has the time of the enqueue in it: so `enqueue` need not ask Redis when that was."""
    ms, low = int(datetime.now(UTC).timestamp() * 1000), secrets.randbits(74)
    return str(uuid.UUID(int=ms << 80 | 7 << 76 | low >> 62 << 64 | 2 << 62 | low & (1 << 62) - 1))


def _enqueued(task_id: str) -> datetime | None:
    try:
        number = uuid.UUID(task_id)
    except ValueError:
        return None
    return datetime.fromtimestamp((number.int >> 80) / 1000, UTC) if number.version == 7 else None


def differences(task: Task) -> dict[str, object]:
    """What `using` changed in a task, as JSON has it."""
    declared = import_string(task.module_path)
    names = ("priority", "queue_name", "run_after", "backend")
    changed = {name: getattr(task, name) for name in names if getattr(task, name) != getattr(declared, name)}
    return changed | ({"run_after": changed["run_after"].isoformat()} if changed.get("run_after") else {})


def new_result(
    task: Task, task_id: str, args: Sequence[object], kwargs: Mapping[str, object],
    status: TaskResultStatus = TaskResultStatus.READY,
) -> TaskResult:  # fmt: skip
    """Raises TypeError for arguments that are not JSON."""
    return TaskResult(
        task=task, id=task_id, status=status, args=list(args), kwargs=dict(kwargs), backend=task.backend,
        enqueued_at=_shown(_enqueued(task_id)), started_at=None, last_attempted_at=None, finished_at=None,
        errors=[], worker_ids=[],
    )  # fmt: skip


def amend(result: TaskResult, **fields: object) -> None:
    """Set fields of a result, which is frozen for its users."""
    for name, value in fields.items():
        object.__setattr__(result, name, value)


def result_of(coordinator: Coordinator, task_id: str) -> TaskResult:
    """Read the result of an enqueued task. Raises TaskResultDoesNotExist, also for the id of a job that is none of
    Django's, and once Redis has forgotten the job.
    """
    try:
        job = coordinator.job(task_id)
        declared = import_string(job.task)
    except (UnknownJob, InvalidJob, ImportError) as error:
        raise TaskResultDoesNotExist(task_id) from error
    if not isinstance(declared, Task):
        raise TaskResultDoesNotExist(task_id)
    [(_, _, spec)] = callers(coordinator.store, [job.id])
    changed = cast("dict[str, object]", (spec.get("headers") or {}).get(HEADER) or {})
    if run_after := changed.get("run_after"):
        changed["run_after"] = datetime.fromisoformat(str(run_after))
    result = new_result(declared.using(**changed), task_id, job.args, job.kwargs, _status(job))
    amend(
        result, _return_value=job.result, errors=[_error(job.error)] if job.error else [],
        enqueued_at=result.enqueued_at or _shown(job.submitted), started_at=_shown(job.taken),
        last_attempted_at=_shown(job.started), finished_at=_shown(job.ended),
        worker_ids=[event.node or "" for event in job.course if event.what == "running"],
    )  # fmt: skip
    return result


def _status(job: Job) -> TaskResultStatus:
    if job.state == "succeeded":
        return TaskResultStatus.SUCCESSFUL
    if job.waited_for:  # a held job has failed, too, until an operator retries it
        return TaskResultStatus.FAILED
    return TaskResultStatus.RUNNING if job.state in _RUNNING else TaskResultStatus.READY


def _error(error: ErrorRecord) -> TaskError:
    path = f"{error['module']}.{error['type']}" if "module" in error else _LOST
    return TaskError(exception_class_path=path, traceback=error.get("traceback") or error.get("message", ""))


def _shown(instant: datetime | None) -> datetime | None:
    """As Django's `timezone.now()` tells times: aware, or local without a zone where USE_TZ is off."""
    return instant if instant is None or settings.USE_TZ else timezone.make_naive(instant)
