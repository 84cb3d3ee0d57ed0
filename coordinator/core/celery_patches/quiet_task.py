"""The base class of the coordinator's own tasks, such as the runner's, which keeps signal handlers and SDKs away.

Celery's tracer, which runs the body of a task, sends signals and calls handlers such as `before_start`, and SDKs of
monitoring services wrap the tracer. All of this is meant for the tasks of the app. The runner's task only runs jobs,
and each job is traced as its own task.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from billiard.einfo import ExceptionInfo
from celery import signals, states
from celery._state import _task_stack
from celery.app.task import Context, Task
from celery.app.trace import TraceInfo, trace_ok_t

logger = logging.getLogger(__name__)


class Tracer(Protocol):
    """The type of Celery's tracers, the functions that run the body of a task for one message."""

    def __call__(
        self, uuid: str, args: Sequence[object], kwargs: Mapping[str, object],
        request: Mapping[str, object] | None = None,
    ) -> trace_ok_t: ...  # fmt: skip


class QuietTask(Task):
    """A task that always uses its own tracer, and calls its function without the wrappers that SDKs put around it."""

    abstract = True
    Request = "coordinator.core.celery_patches.quiet_request:QuietRequest"

    @property
    def __trace__(self) -> Tracer:
        return self._trace

    @__trace__.setter
    def __trace__(self, tracer: object) -> None:
        """Ignore the tracer that a worker assigns to each task."""

    def _trace(
        self, uuid: str, args: Sequence[object], kwargs: Mapping[str, object],
        request: Mapping[str, object] | None = None,
    ) -> trace_ok_t:  # fmt: skip
        _task_stack.push(self)
        self.request_stack.push(Context(request or {}, args=args, kwargs=kwargs, called_directly=False))
        try:
            run = vars(type(self))["run"].__get__(self, type(self))  # the function without an SDK's wrapper
            return trace_ok_t(run(*args, **kwargs), None, 0.0, None)
        except Exception as error:
            logger.exception("%s failed", self.name)
            info, call = ExceptionInfo(), {"task_id": uuid, "args": args, "kwargs": kwargs}
            signals.task_failure.send(sender=self, exception=error, traceback=info.tb, einfo=info, **call)
            return trace_ok_t(info, TraceInfo(states.FAILURE, error), 0.0, None)
        finally:
            self.request_stack.pop()
            _task_stack.pop()
