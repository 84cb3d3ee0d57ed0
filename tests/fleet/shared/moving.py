"""The modules of `examples/moving` on a fleet, and what their work did."""

from importlib import import_module
from typing import Any

import pytest
import redis
from billiard.exceptions import WorkerLostError
from celery.result import AsyncResult
from celery_once import AlreadyQueued
from celery_singleton import Singleton

from coordinator import Locked
from tests.harness.fleet import Fleet


class Moving:
    """`locks`: the Redis database of the other libraries' locks."""

    def __init__(self, fleet: Fleet, locks: redis.Redis) -> None:
        self.fleet = fleet
        self.locks = locks
        self.app = fleet.app("moving").app
        self.coordinator = fleet.app("moving").coordinator

    def before(self, name: str) -> Any:
        return import_module(f"examples.moving.before.{name}")

    def after(self, name: str) -> Any:
        return import_module(f"examples.moving.after.{name}")

    def begun(self, *names: str) -> None:
        self.fleet.begun(*names)

    def go(self, *names: str) -> None:
        for name in names:
            self.fleet.go(name)

    def names(self, what: str = "begin") -> list[str]:
        return [stamp.name for stamp in self.fleet.stamps(what=what)]

    def at_work(self) -> set[str]:
        return set(self.names()) - set(self.names("end"))

    def lock_of(self, task: Any, customer: str) -> str:
        """The name of the task's own lock in Redis."""
        if isinstance(task, Singleton):
            return str(task.generate_lock(task.name, [customer, "june"]))
        return str(task.get_key([customer, "june"], {}))


def again(module: Any, customer: str) -> bool:
    """Once the first call has ended, the next one runs."""
    try:
        return bool(module.report.delay(customer, "quick").get(timeout=60) == f"{customer}/quick")
    except (AlreadyQueued, Locked):
        return False


def ended(call: AsyncResult) -> str:
    """The id of a call whose process dies: one at a time, since Celery may forget one of several."""
    with pytest.raises(WorkerLostError):
        call.get(timeout=60)
    return str(call.id)
