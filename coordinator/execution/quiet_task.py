"""A task of ours that a user's signal handlers do not hear of.

Handlers of `task_prerun`, `task_postrun` and `task_success` are for the tasks of the app. The runner's task only
carries them: each job sends the signals of its own task.
"""

from __future__ import annotations

from typing import Any

from celery.app.task import Task

_HANDLERS = ("prerun_receivers", "postrun_receivers", "success_receivers")


class QuietTask(Task):
    """Celery gives each task a tracer, which looks into the lists of handlers: those of this one are empty."""

    abstract = True
    _tracer: Any = None

    @property
    def __trace__(self) -> Any:
        return self._tracer

    @__trace__.setter
    def __trace__(self, tracer: Any) -> None:
        known = dict(zip(tracer.__code__.co_freevars, tracer.__closure__ or (), strict=True)) if tracer else {}
        for name in known.keys() & set(_HANDLERS):
            known[name].cell_contents = ()
        self._tracer = tracer
