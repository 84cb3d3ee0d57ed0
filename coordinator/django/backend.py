"""A backend of Django's tasks: an enqueued task is a job.

TASKS = {"default": {"BACKEND": "coordinator.django.TaskBackend"}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from coordinator.core.jobs.options import SubmitOptions
from coordinator.core.jobs.validation import near
from coordinator.django.declared import DeclaredTask
from coordinator.django.framework import BaseTaskBackend, InvalidTask, Task, TaskResult, task_enqueued
from coordinator.django.project import project
from coordinator.django.results import HEADER, amend, differences, new_id, new_result, result_of
from coordinator.errors import Locked

USUAL = "default"  # Django's name of the usual queue; in Celery that is `task_default_queue`, or where routes lead
_KNOWN = ("BACKEND", "QUEUES", "OPTIONS", "ENQUEUE_ON_COMMIT")
_OPTIONS = ("outbox",)


class TaskBackend(BaseTaskBackend):
    """Enqueues tasks as jobs of the coordinator of the project's Celery app.

    A task without a key of its own is in a lane of its own. With ENQUEUE_ON_COMMIT, an enqueue inside a transaction of
    the default database becomes a job when that commits, and none where it is rolled back. With the option `outbox`,
    the transaction itself writes the job (`Coordinator.outbox`).
    """

    task_class = DeclaredTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, object]) -> None:
        super().__init__(alias, params)
        self._unknown = [f"{name!r}{near(name, _KNOWN)}" for name in params if name not in _KNOWN]
        self._unknown += [f"{name!r} in OPTIONS{near(name, _OPTIONS)}" for name in self.options if name not in _OPTIONS]
        self._outbox = bool(self.options.get("outbox", False))
        self._on_commit = self._outbox or bool(params.get("ENQUEUE_ON_COMMIT", False))

    def validate_task(self, task: Task) -> None:
        super().validate_task(task)
        if not isinstance(task, DeclaredTask):
            raise InvalidTask(
                f"workers do not know {task.module_path}, which was declared for another backend: declare it with "
                f"@task(backend={self.alias!r}), and name the other one where it is enqueued: using(backend=…)"
            )

    def enqueue(self, task: DeclaredTask, args: Sequence[object], kwargs: Mapping[str, object]) -> TaskResult:
        """Submit a job. Raises what `Coordinator.submit` raises, and Locked where a keyed task with `when_busy` was
        skipped for no other.
        """
        self.validate_task(task)
        coordinator = project().coordinator
        result = new_result(task, new_id(), args, kwargs)
        called = task.celery_task
        signature = called.signature(result.args, result.kwargs)
        if changed := differences(task):
            signature.set(headers={HEADER: changed})
        if task.queue_name != USUAL:
            signature.set(queue=task.queue_name)
        options: SubmitOptions = {"job_id": result.id, "priority": task.priority}
        if task.run_after is not None:
            at = task.run_after
            options["not_before"] = at if timezone.is_aware(at) else timezone.make_aware(at)
        keyed = coordinator._keyed_tasks.of(called) if coordinator._keyed_tasks else None
        keys = None if keyed else f"{task.module_path}/{result.id}"
        if self._on_commit:
            coordinator.submit_on_commit(keys, signature, outbox=self._outbox, **options)
        else:
            submission = coordinator.submit(keys, signature, **options)
            if submission.outcome == "skipped" and keyed and keyed.raises:
                raise Locked(submission._key, submission.of or None)
            amend(result, id=submission._result_id)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        return result_of(project().coordinator, result_id)

    def check(self, **kwargs: object) -> Iterable[CheckMessage]:
        yield from super().check(**kwargs)
        name = f"TASKS[{self.alias!r}]"
        for unknown in self._unknown:
            hint = f"known: {', '.join(_KNOWN)}; in OPTIONS: {', '.join(_OPTIONS)}"
            yield Error(f"{name} has an unknown setting {unknown}", hint, id="coordinator.tasks.setting")
        try:
            coordinator = project().coordinator
        except ImproperlyConfigured as error:
            yield Error(f"{name}: {error}", id="coordinator.tasks.app")
            return
        if self._outbox and USUAL not in coordinator._outboxes:
            said = f"{name} enqueues through an outbox that nobody declared"
            hint = "write coordinator.outbox() below coordinator = Coordinator(app)"
            yield Error(said, hint, id="coordinator.tasks.outbox")
