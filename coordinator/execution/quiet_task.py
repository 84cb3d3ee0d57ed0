"""A task of ours that nobody else hears of.

Celery's tracer calls signal handlers, and `before_start` and the like; SDKs wrap it. All that is for the tasks of the
app. The runner's task only carries them: each job is traced as its own task.
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
    """Celery's way to run a task for a request."""

    def __call__(
        self, uuid: str, args: Sequence[object], kwargs: Mapping[str, object],
        request: Mapping[str, object] | None = None,
    ) -> trace_ok_t: ...  # fmt: skip


class QuietTask(Task):
    """It keeps no tracer but its own, and calls its function as it was declared."""

    abstract = True
    Request = "coordinator.worker.quiet_request:QuietRequest"

    @property
    def __trace__(self) -> Tracer:
        return self._trace

    @__trace__.setter
    def __trace__(self, tracer: object) -> None:
        """A worker gives each task a tracer of Celery's."""

    def _trace(
        self, uuid: str, args: Sequence[object], kwargs: Mapping[str, object],
        request: Mapping[str, object] | None = None,
    ) -> trace_ok_t:  # fmt: skip
        _task_stack.push(self)
        self.request_stack.push(Context(request or {}, args=args, kwargs=kwargs, called_directly=False))
        try:
            run = vars(type(self))["run"].__get__(self, type(self))  # without what an SDK puts around it
            return trace_ok_t(run(*args, **kwargs), None, 0.0, None)
        except Exception as error:
            logger.exception("%s failed", self.name)
            info, given = ExceptionInfo(), {"task_id": uuid, "args": args, "kwargs": kwargs}
            signals.task_failure.send(sender=self, exception=error, traceback=info.tb, einfo=info, **given)
            return trace_ok_t(info, TraceInfo(states.FAILURE, error), 0.0, None)
        finally:
            self.request_stack.pop()
            _task_stack.pop()
