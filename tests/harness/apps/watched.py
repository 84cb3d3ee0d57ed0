"""The app `shop` with an SDK that wraps Celery's tracer, as Sentry's does, and with annotations for all tasks.

It is for a worker alone: the wrapper would stay in a process of the tests.
"""

from functools import wraps
from typing import Any

from celery import signals
from celery.app import trace

from tests.harness.apps.shop import app, stamp

_built = trace.build_tracer


def build_tracer(name: str, task: Any, *args: Any, **kwargs: Any) -> Any:
    run = task.run

    @wraps(run)
    def watched_run(*given: Any, **named: Any) -> Any:
        stamp(name, "ran")
        return run(*given, **named)

    if "watched" not in vars(task):
        task.run, task.watched = watched_run, True
    tracer = _built(name, task, *args, **kwargs)

    def watched(*given: Any, **named: Any) -> Any:
        stamp(name, "traced")
        return tracer(*given, **named)

    return watched


def before_start(self: Any, task_id: str, args: Any, kwargs: Any) -> None:
    stamp(self.name, "before_start")


def on_success(self: Any, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
    stamp(self.name, "on_success")


@signals.task_prerun.connect(weak=False)
def opens(sender: Any, **_: Any) -> None:
    """As Django's fixup, which closes connections unless the request is eager."""
    stamp(sender.name, f"prerun-{sender.request.is_eager}")


trace.build_tracer = build_tracer
app.conf.task_annotations = {"*": {"before_start": before_start, "on_success": on_success}}
