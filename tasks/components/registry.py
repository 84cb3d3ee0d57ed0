"""Finds the components that an app declares, and opens the store of the items that they work on."""

import os
from collections.abc import Mapping
from functools import cache

from celery import Celery
from celery.canvas import Signature
from sqlalchemy.exc import InterfaceError, InternalError, OperationalError

from coordinator import (
    Coordinator,
    CoordinatorError,
    CurrentJob,
    StoreRefused,
    StoreUnavailable,
    SubmitOptions,
    current_job,
)
from tasks import whereabouts
from tasks.batches import Items
from tasks.components.declaration import Component
from tasks.database import identity, name_of
from tasks.settings import Settings

POLL, WORK, RECORD = "tasks.components.poll", "tasks.components.work", "tasks.components.record"
"""Prefixes of task names. The component's name follows, so that only nodes that declare the component get its jobs.

POLL: of runs. WORK: of children. RECORD: of the rollbacks of children.
"""

Errors = tuple[type[BaseException], ...]

INFRASTRUCTURE: Errors = (OperationalError, InterfaceError, InternalError, StoreUnavailable, StoreRefused)
"""Exceptions that mean that the database or Redis is away, after which a job is tried again.

InternalError: what a read-only PostgreSQL, such as a standby, raises.
"""

OF_A_RUN: SubmitOptions = {"max_lifetime": 9e9}
"""Options of the job of a run: in effect no end of its life, since it is parked until its children have ended."""


def run_options(component: Component) -> SubmitOptions:
    """The options of a component's run. It stands in no lane."""
    return {**OF_A_RUN, "uses": component.runs}


class UnknownComponent(CoordinatorError, LookupError):
    """The app declares no component of this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"there is no component {name}; declared are: {', '.join(known) or 'none'}")
        self.name, self.known = name, known

    def __reduce__(self) -> tuple[type["UnknownComponent"], tuple[str, list[str]]]:
        return type(self), (self.name, self.known)


class Registry:
    """Finds the components of the coordinator's app.

    `infrastructure`: types of exceptions, in addition to INFRASTRUCTURE, after which a job of any component is tried
    again. Raises ValueError if the coordinator has no app.
    """

    def __init__(self, coordinator: Coordinator, *, infrastructure: Errors = ()) -> None:
        if coordinator.app is None:
            raise ValueError("components need a coordinator with a Celery app")
        self.coordinator = coordinator
        self.app: Celery = coordinator.app
        self.infrastructure = (*INFRASTRUCTURE, *infrastructure)
        self._declared: dict[str, Component] = {}
        self._items = cache(self._open)

    def __getitem__(self, name: str) -> Component:
        """Return the component of this name. Raises UnknownComponent."""
        self.load()
        if name not in self._declared:
            raise UnknownComponent(name, sorted(self._declared))
        return self._declared[name]

    def all(self) -> list[Component]:
        """Return all components, in the order of their declaration."""
        self.load()
        return list(self._declared.values())

    def load(self) -> None:
        """Import the modules that the app's settings name, which declare the components."""
        self.app.loader.import_default_modules()

    @property
    def items(self) -> Items:
        """This process's store of items, opened at the first use. A forked process opens its own.

        Raises UnusableDatabase, and Elsewhere if it is not the installation's database.
        """
        return self._items(os.getpid())

    def _open(self, pid: int) -> Items:
        at_node = bool(self.coordinator.node)
        return self.open(may_be_newer=at_node, keeps=at_node)

    def open(self, **given: bool) -> Items:
        """Open a new store of items in the database that the environment names. `given`: options of Items.

        Raises UnusableDatabase, and Elsewhere if it is not the installation's database.
        """
        items = Items(Settings.from_environment(), **given)
        whereabouts.check(self.coordinator.store, whereabouts.DATABASE, identity(items.engine), name_of(items.engine))
        return items

    def signature(self, task: str, component: str, *args: str) -> Signature:
        """Return a call of one of a component's tasks. `task`: POLL, WORK or RECORD. `args`: the task's arguments."""
        return self.app.signature(f"{task}.{component}", args=args)

    def infrastructure_of(self, component: Component) -> Errors:
        """Return the types of exceptions after which a job of this component is tried again."""
        return (*self.infrastructure, *component.infrastructure)

    def depends_on(self) -> Mapping[str, frozenset[str]]:
        """Map each component's type of event to the types of events that the component depends on."""
        return {component.event: component.depends_on for component in self.all()}


def this_job() -> CurrentJob:
    """Return the job that this process is running. Raises CoordinatorError outside of a job."""
    job = current_job()
    if job is None:
        raise CoordinatorError("a component works only as a job: coordinator components run NAME")
    return job
