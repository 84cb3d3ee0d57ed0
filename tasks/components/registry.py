"""The declared components of an app, and their store of items."""

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
"""The tasks of a component have its name behind these: so only nodes that have the component get its jobs."""

Errors = tuple[type[BaseException], ...]

INFRASTRUCTURE: Errors = (OperationalError, InterfaceError, InternalError, StoreUnavailable, StoreRefused)
"""The errors of a database or Redis that is away: the outcome for the item is not known, so the job tries again. A
read-only PostgreSQL, such as a standby, raises an InternalError.
"""

OF_A_RUN: SubmitOptions = {"max_lifetime": 9e9}
"""The options of a run. It has no time limit: it ends with its children, which have their own."""


class UnknownComponent(CoordinatorError, LookupError):
    """No component has this name here."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"no component is called {name}; declared are: {', '.join(known) or 'none'}")
        self.name, self.known = name, known

    def __reduce__(self) -> tuple[type["UnknownComponent"], tuple[str, list[str]]]:
        return type(self), (self.name, self.known)


class Registry:
    """Finds components. `infrastructure`: further types of infrastructure errors, for all components."""

    def __init__(self, coordinator: Coordinator, *, infrastructure: Errors = ()) -> None:
        if coordinator.app is None:
            raise ValueError("components need a coordinator with a Celery app")
        self.coordinator = coordinator
        self.app: Celery = coordinator.app
        self.infrastructure = (*INFRASTRUCTURE, *infrastructure)
        self._declared: dict[str, Component] = {}
        self._items = cache(self._open)

    def __getitem__(self, name: str) -> Component:
        """Raises UnknownComponent."""
        self.load()
        if name not in self._declared:
            raise UnknownComponent(name, sorted(self._declared))
        return self._declared[name]

    def all(self) -> list[Component]:
        """All components in the order of their declaration."""
        self.load()
        return list(self._declared.values())

    def load(self) -> None:
        """Import the modules that the app names, and with them the declarations."""
        self.app.loader.import_default_modules()

    @property
    def items(self) -> Items:
        """This process's store. A forked process opens its own. Raises UnusableDatabase."""
        return self._items(os.getpid())

    def _open(self, pid: int) -> Items:
        at_node = bool(self.coordinator.node)
        return self.open(may_be_newer=at_node, keeps=at_node)

    def open(self, **given: bool) -> Items:
        """A store of its own. Raises UnusableDatabase; Elsewhere for one that is not the installation's."""
        items = Items(Settings.from_environment(), **given)
        whereabouts.check(self.coordinator.store, whereabouts.DATABASE, identity(items.engine), name_of(items.engine))
        return items

    def signature(self, task: str, component: str, *args: str) -> Signature:
        """A call of one of the component's tasks: POLL, WORK or RECORD."""
        return self.app.signature(f"{task}.{component}", args=args)

    def infrastructure_of(self, component: Component) -> Errors:
        return (*self.infrastructure, *component.infrastructure)

    def depends_on(self) -> Mapping[str, frozenset[str]]:
        """The types of events that each type of event depends on."""
        return {component.event: component.depends_on for component in self.all()}


def this_job() -> CurrentJob:
    job = current_job()
    if job is None:
        raise CoordinatorError("a component works only as a job: coordinator components run NAME")
    return job
