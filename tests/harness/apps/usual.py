"""Further tasks of the app `shop`, which use what Celery gives every task; a worker loads them with `-I`."""

import signal
import time
from functools import partial
from typing import Any

from celery import chain, group
from celery.app.task import Task
from celery.exceptions import Ignore, SoftTimeLimitExceeded

from tests.harness.apps.shop import add, app, fail, note, stamp, total

task = partial(app.task, shared=False)  # else each later app of a test process has them too


@task(bind=True)
def seen(self: Task) -> list[Any]:
    """What a task asks of its request."""
    return [self.request.is_eager, self.request.called_directly, self.request.retries]


@task(bind=True)
def tells_itself(self: Task) -> None:
    """It stores its result by itself, and has its worker store none."""
    told = {"exc_type": "ValueError", "exc_message": ["its own"], "exc_module": "builtins"}
    self.update_state(state="FAILURE", meta=told)
    raise Ignore


@task(bind=True)
def replaces(self: Task, kind: str, *before: int) -> Any:
    """Another task goes on in its place."""
    stamp(kind, "begin")
    made = {
        "task": lambda: add.s(1, 2),
        "chain": lambda: chain(add.s(1, 2), add.s(10)),
        "group": lambda: group(add.s(1, 2), add.s(3, 4)),
        "chord": lambda: group(add.s(1, 2), add.s(3, 4)) | total.s(),
        "before": lambda: add.s(*before, 100),
        "fails": lambda: fail.s("replaced"),
        "silent": lambda: note.si("silent").set(ignore_result=True, countdown=0.1),  # no step has a countdown
        "twice": lambda: self.app.tasks[self.name].s("task"),
    }
    return self.replace(made[kind]())


@task(bind=True, max_retries=3)
def goes_on(self: Task, name: str) -> None:
    """Would be tried again although it ends well."""
    stamp(name, "begin")
    self.retry(countdown=0, throw=False)


@task(bind=True)
def ignored(self: Task) -> None:
    raise Ignore


app.conf.task_annotations = {"tests.harness.apps.usual.hurried": {"time_limit": 0.5}}
vars(app).pop("annotations", None)  # read before


@task()
def hurried(name: str) -> None:
    """Takes longer than the app's annotation lets it."""
    stamp(name, "begin")
    time.sleep(60)


app.conf.task_routes = {"tests.harness.apps.usual.odd": {"queue": "odd"}}


@task()
def odd() -> None:
    """Goes to a queue that no node serves."""


@task()
def alarmed() -> str:
    """Uses the one timer of its process, as libraries for time limits do."""
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 60)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    try:
        time.sleep(5)
    except SoftTimeLimitExceeded:
        return "soft limit seen"
    return "no limit"
