"""Further tasks of the app `shop`, all of which go wrong in a way of their own; a worker loads them with `-I`.

The first process of a pool that reaches the point of an attempt (prerun, postrun, told) which PREFIX.kill names in
the tests' Redis kills itself.
"""

import asyncio
import errno
import os
import resource
import signal
import socket
import time
from contextlib import suppress
from functools import partial
from typing import Any

import redis
from celery import signals
from celery.app.task import Task

from coordinator import Conflict, NoRetry, ShuttingDown, current_job
from tests.harness.apps.shop import app, note, stamp

task = partial(app.task, shared=False)  # else each later app of a test process has them too
_record = redis.Redis.from_url(os.environ["TEST_LOG"], decode_responses=True)
_PREFIX = os.environ["TEST_PREFIX"]


class Unspeakable(Exception):
    """Cannot be pickled, printed or shown."""

    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__

    def __reduce__(self) -> Any:
        raise TypeError("not to be pickled")


class Stale(Exception):
    """What somebody else's storage raises on an optimistic conflict."""


class Abort(BaseException):
    """Not an Exception: nobody is meant to catch it. Nor to show it."""

    def __repr__(self) -> str:
        raise ValueError("no words")


@task()
def until(name: str, good: int, error: str = "ValueError") -> int:
    """Raises until its attempt `good`."""
    stamp(name, "begin")
    job = current_job()
    assert job
    if job.attempt < good:
        raise {"ValueError": ValueError, "NoRetry": NoRetry, "Stale": Stale, "Conflict": Conflict}[error]("not yet")
    stamp(name, "end")
    return job.attempt


@task()
def ends_badly(name: str, how: str) -> None:
    stamp(name, "begin")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    kinds = {
        "memory": MemoryError, "exit": SystemExit, "interrupt": KeyboardInterrupt, "cancelled": asyncio.CancelledError,
        "abort": Abort, "generator": GeneratorExit,
    }  # fmt: skip
    raise kinds.get(how, Unspeakable)()


@task()
def unkeepable(name: str) -> object:
    """A result that is no JSON."""
    stamp(name, "begin")
    return object()


@task(bind=True, max_retries=2)
def insists(self: Task, name: str, countdown: float = 0) -> None:
    """Retries itself for ever; its own bound is three calls."""
    stamp(name, "begin")
    raise self.retry(countdown=countdown)


@task(autoretry_for=(OSError,), max_retries=2, default_retry_delay=0, retry_backoff=False)
def insists_by_itself(name: str) -> None:
    stamp(name, "begin")
    raise OSError(name)


@task(autoretry_for=(OSError,), retry_kwargs={"max_retries": 5, "countdown": 0})
def insists_for_long(name: str) -> None:
    """More often than `max_retries` of a task is usually."""
    stamp(name, "begin")
    raise OSError(name)


@task(bind=True)
def insists_otherwise(self: Task, name: str) -> None:
    stamp(name, "begin")
    raise self.retry(args=(f"other {name}",), countdown=0)


@task()
def undo_badly(name: str, how: str) -> None:
    """A rollback that raises, hangs, or is killed."""
    stamp(name, "undone")
    if how == "hang":
        time.sleep(60)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise LookupError("nothing to undo")


@task()
def given(name: str) -> None:
    """A rollback that keeps what it was given."""
    job = current_job()
    assert job
    assert job.undoing
    undoing = job.undoing
    seen = [job.id, job.key, list(undoing.args), undoing.kwargs, undoing.error and undoing.error["message"]]
    _record.rpush(f"{_PREFIX}.given", repr([*seen, undoing.result]))
    stamp(name, "undone")


@task()
def refuse(value: int, word: str) -> None:
    """A later step that fails."""
    raise ValueError(f"{word} {value}")


@task()
def count_up() -> None:
    """Adds one to a record, optimistically: read, then write what nobody else wrote meanwhile."""
    name = f"{_PREFIX}.record"
    with _record.pipeline() as write:
        write.watch(name)
        value = int(write.get(name) or 0)
        time.sleep(0.0005)
        write.multi()
        write.set(name, value + 1)
        try:
            write.execute()
        except redis.WatchError as error:
            _record.incr(f"{_PREFIX}.conflicts")
            raise Conflict(str(error)) from error


@task()
def spawns() -> Any:
    """Ends when another task has ended."""
    return app.signature("tests.harness.apps.shop.add", (1, 2)).apply_async()


@task()
def leaves_a_daemon(name: str) -> int:
    """Forks a process of its own that goes on without exec; its pid."""
    stamp(name, "begin")
    if pid := os.fork():
        return pid
    os.setsid()
    time.sleep(600)
    os._exit(0)


def _unreachable(*_: Any) -> None:
    raise OSError(errno.ENETUNREACH, "cut off")


@task()
def damages_its_process(name: str, how: str) -> None:
    """So that the process can open no file any more, write none, or connect to nothing; but not in a second attempt."""
    stamp(name, "begin")
    if (job := current_job()) and job.attempt > 1:
        return
    if how == "cannot reach Redis":
        app.coordinator.close()
        socket.socket.connect = _unreachable  # type: ignore[method-assign]
    if how == "has no descriptors left":
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        with suppress(OSError):
            while True:
                os.dup(1)
    if how == "is another user":
        os.setuid(65534)
    if how == "may write to no file":
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


class Told(Task):
    abstract = True

    def after_return(self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        stamp(args[0], "returned")


@task(base=Told)
def forks(name: str, child: str) -> str:
    """Its child comes back from here at once; the parent works until the child is gone, and the test says so."""
    stamp(name, "begin")
    if pid := os.fork():
        os.waitpid(pid, 0)
        stamp(name, "alone")
        _record.blpop([f"{_PREFIX}.go.{name}"], 110)
        stamp(name, "end")
        return "the parent"
    if child == "fails":
        raise ValueError("in the child")
    if child == "exits":
        raise SystemExit(3)
    return "the child"


@task()
def hands_on(name: str) -> str:
    """Submits another job, once the test says so."""
    stamp(name, "begin")
    while not _record.exists(f"{_PREFIX}.go"):
        time.sleep(0.02)
    return app.coordinator.submit("late", note.s("from a job"), job_id=f"{name}'s").outcome


@signals.worker_shutdown.connect
def _too_late(**_: Any) -> None:
    try:
        app.coordinator.submit("late", note.s("from the worker"))
    except ShuttingDown:
        stamp("worker", "refused")


def _die_once(point: str, sender: Any = None, **_: Any) -> None:
    name = getattr(sender, "name", sender)
    if name.startswith("tests.") and _record.get(f"{_PREFIX}.kill") == point and _record.delete(f"{_PREFIX}.kill"):
        os.kill(os.getpid(), signal.SIGKILL)


@signals.worker_process_init.connect
def _watch(**_: Any) -> None:
    kinds = {"prerun": signals.task_prerun, "postrun": signals.task_postrun, "told": signals.before_task_publish}
    for point, kind in kinds.items():
        kind.connect(partial(_die_once, point), weak=False)
