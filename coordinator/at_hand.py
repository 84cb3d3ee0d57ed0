"""The lanes, locks, grabs and sorters of a coordinator: in Redis, or in place where the app calls its tasks eagerly."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

from coordinator.closing import task_at_work
from coordinator.errors import SettingsError
from coordinator.later import Later
from coordinator.steering import Steering

if TYPE_CHECKING:
    from celery import Celery

    from coordinator.documents.registry import Documents
    from coordinator.execution.parked import Parked
    from coordinator.execution.results import Results
    from coordinator.in_place import InPlace
    from coordinator.lanes.grab import Grabber
    from coordinator.lanes.lanes import Lanes
    from coordinator.lanes.leases import Renewer
    from coordinator.lanes.locks import Locks
    from coordinator.lanes.sorter import Sorters
    from coordinator.settings import Settings
    from coordinator.store.client import Store
else:
    Parked = Later("coordinator.execution.parked", "Parked")
    Results = Later("coordinator.execution.results", "Results")
    InPlace = Later("coordinator.in_place", "InPlace")
    Grabber = Later("coordinator.lanes.grab", "Grabber")
    Lanes = Later("coordinator.lanes.lanes", "Lanes")
    Renewer = Later("coordinator.lanes.leases", "Renewer")
    Locks = Later("coordinator.lanes.locks", "Locks")
    Sorters = Later("coordinator.lanes.sorter", "Sorters")

T = TypeVar("T")


class Either(Generic[T]):
    """The one of two that counts now: an app may change `task_always_eager`, and tests do.

    It is no data descriptor: a test may put something else into an object under its name.
    """

    def __init__(self, in_redis: Callable[[AtHand], T], in_place: Callable[[InPlace], T]) -> None:
        self._in_redis, self._in_place = in_redis, in_place

    def __get__(self, host: AtHand, owner: type[AtHand] | None = None) -> T:
        if host.app is not None and host.app.conf.task_always_eager:
            return self._in_place(host._eagerly)
        return self._in_redis(host)


class AtHand(Steering):
    app: Celery | None

    @property
    @abstractmethod
    def documents(self) -> Documents: ...

    @property
    @abstractmethod
    def settings(self) -> Settings: ...

    @property
    @abstractmethod
    def store(self) -> Store: ...

    core = Either["Lanes"](lambda self: self._lanes, lambda in_place: in_place)
    _locks = Either["Locks | InPlace"](lambda self: self._locks_in_redis, lambda in_place: in_place)
    _sorters = Either["Sorters"](lambda self: self._sorters_in_redis, lambda in_place: in_place.sorters)

    @cached_property
    def _eagerly(self) -> InPlace:
        assert self.app is not None
        return InPlace(self.app, eager=True)

    @cached_property
    def _lanes(self) -> Lanes:
        return Lanes(self.store)

    @cached_property
    def _locks_in_redis(self) -> Locks:
        return Locks(self.store, self._lanes, self._renewer)

    @cached_property
    def _sorters_in_redis(self) -> Sorters:
        return Sorters(self.store)

    @cached_property
    def _renewer(self) -> Renewer:
        return Renewer(self.store)

    @property
    def _grabber(self) -> Grabber:
        core = self.core
        in_place = sys.modules.get("coordinator.in_place")  # there where jobs run in place
        if in_place is None or not isinstance(core, in_place.InPlace):
            return self._grabber_in_redis
        made: Grabber = in_place.GrabberInPlace(core, self.settings, lambda: self.documents.node, _is_in_task)
        return made

    @cached_property
    def _grabber_in_redis(self) -> Grabber:
        return Grabber(self.store, self._renewer, self.core.holds, lambda: self.documents.node, _is_in_task)

    @cached_property
    def results(self) -> Results:
        return Results(self.store, self._lanes, self._bound)

    @cached_property
    def parked(self) -> Parked:
        return Parked(self._lanes, self._bound)

    @property
    def _bound(self) -> Celery:
        if self.app is None:
            raise SettingsError("this coordinator is a plain client: it has no Celery app")
        return self.app


def _is_in_task() -> bool:
    """Does a worker call us as a task?"""
    task = task_at_work()
    return task is not None and not task.request.called_directly
