"""The tasks of the project."""

import asyncio
import os
import signal
import time
from typing import Any

from billiard.common import _should_have_exited
from celery import signals
from django import VERSION
from django.db import connection

from coordinator import Conflict, current_job
from coordinator.django import coordinate

if VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task

ran: list[Any] = []  # what ran in this process


@signals.task_prerun.connect
def held(**_: Any) -> None:
    """The first attempt of a process waits in front of its body, where a test says so."""
    if (place := os.environ.get("TEST_HOLD")) and not os.path.exists(f"{place}.over"):
        open(f"{place}.here", "w").close()
        while not os.path.exists(f"{place}.go"):
            time.sleep(0.02)


@signals.task_postrun.connect
def over(**_: Any) -> None:
    if place := os.environ.get("TEST_HOLD"):
        open(f"{place}.over", "w").close()


class Odd(Exception):
    """An exception of the project."""


@task()
def noop(*args: Any, **kwargs: Any) -> None:
    ran.append((args, kwargs))


@task
def bare(*args: Any, **kwargs: Any) -> None: ...


@task()
async def noop_async(*args: Any, **kwargs: Any) -> str:
    await asyncio.sleep(0)
    return "async"


@task()
async def fails_async() -> None:
    ran.append(asyncio.get_running_loop())
    raise Odd("awaited")


@task()
def meaning() -> int:
    return 42


@task()
def fails(text: str = "so") -> None:
    raise Odd(text)


@task()
def fails_oddly() -> None:
    raise ValueError(ValueError("within"))


@task()
def leaves() -> None:
    raise SystemExit("leaves")


@task()
def is_ended() -> None:
    """As if the worker ended this process during the task."""
    _should_have_exited[0] = True
    raise SystemExit("ended")


@task(backend="immediate")
def elsewhere() -> int:
    return 7


@task()
def odd_value() -> Any:
    return lambda: True


@task(takes_context=True)
def told(context: Any, number: int) -> list[Any]:
    result = context.task_result
    return [result.id, context.attempt, result.status, result.worker_ids, result.task.queue_name, number]


@task
@coordinate(key="order/{order_id}", uses={"api/{tenant}": 2}, max_attempts=2, retry_delay=0)
def ship(order_id: int, tenant: str = "acme") -> list[Any]:
    job = current_job()
    assert job
    ran.append(order_id)
    if order_id < 0 and job.attempt == 1:
        raise Odd("once")
    return [job.key, job.attempt]


@task(takes_context=True)
@coordinate(key="order/{order_id}", max_attempts=2, retry_delay=0)
def again(context: Any, order_id: int) -> int:
    if context.attempt == 1:
        raise Odd(f"order {order_id}")
    return int(context.attempt)


@task(takes_context=True)
def conflicts(context: Any) -> int:
    if context.attempt == 1:
        raise Conflict
    return int(context.attempt)


@task
@coordinate(key="held", on_failure="hold")
def is_held() -> None:
    raise Odd


@task
@coordinate(key="single", when_busy="skip")
def single() -> None: ...


@task
@coordinate(key="single", when_busy="skip", on_skip="raise")
def strict() -> None: ...


@task
@coordinate(key="quiet/{order_id}", when_busy="defer")
def quiet(order_id: int) -> None: ...


@task
def dies_once(file: str) -> str:
    """Kills its process at its first attempt."""
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return "second"
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@task
def asks(number: int) -> list[Any]:
    """Its process, whether that had a connection open, and what the database says."""
    was_open = connection.connection is not None
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s", [number])
        return [os.getpid(), was_open, cursor.fetchone()[0]]
