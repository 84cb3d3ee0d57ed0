"""The declared components of an app, and the store that they share."""

import math
import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Unpack

from celery import Celery
from celery.canvas import Signature
from sqlalchemy.exc import InterfaceError, InternalError, OperationalError

from coordinator import Coordinator, StoreRefused, StoreUnavailable
from coordinator.jobs.options import Options
from tasks.batches import Items
from tasks.components.declaration import Component, Function, Words
from tasks.settings import Settings

POLL, WORK, RECORD = "tasks.components.poll", "tasks.components.work", "tasks.components.record"

Errors = tuple[type[BaseException], ...]

INFRASTRUCTURE: Errors = (OperationalError, InterfaceError, InternalError, StoreUnavailable, StoreRefused)
"""The database or Redis is away: what a component wanted to say of an item, nobody knows yet. A PostgreSQL that takes
no change, as one that follows another, raises an InternalError.
"""


class UnknownComponent(Exception):
    """No component has this name here."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(f"no component is called {name}; declared are: {', '.join(known) or 'none'}")
        self.name, self.known = name, known

    def __reduce__(self) -> tuple[type["UnknownComponent"], tuple[str, list[str]]]:
        return type(self), (self.name, self.known)


class Registry:
    """`infrastructure`: further types of exceptions that are infrastructure errors of all components."""

    def __init__(self, coordinator: Coordinator, *, infrastructure: Errors = ()) -> None:
        if coordinator.app is None:
            raise ValueError("components need a coordinator with a Celery app")
        self.coordinator = coordinator
        self.app: Celery = coordinator.app
        self.infrastructure = (*INFRASTRUCTURE, *infrastructure)
        self._declared: dict[str, Component] = {}
        self._items = cache(self._open)

    def declare(self, name: str, version: str, event: str, **words: Unpack[Words]) -> Callable[[Function], Function]:
        """Declare a component: a decorator of its function, which it gives back. docs/batches.md has the words.

        Raises ValueError for a second declaration of a name or of an event type.
        """

        def add(function: Function) -> Function:
            made = Component(name, version, event, function, **words)
            for other in self._declared.values():
                if name == other.name:
                    raise ValueError(f"the component {name} is declared twice")
                if event == other.event:
                    raise ValueError(f"{name} and {other.name} both declare the event {event}: one component makes it")
            self._declared[name] = made
            return function

        return add

    def __getitem__(self, name: str) -> Component:
        """Raises UnknownComponent."""
        self.load()
        if name not in self._declared:
            raise UnknownComponent(name, sorted(self._declared))
        return self._declared[name]

    def all(self) -> list[Component]:
        """In the order of their declaration."""
        self.load()
        return list(self._declared.values())

    def load(self) -> None:
        """Import the modules that the app names: one of them has the declarations."""
        self.app.loader.import_default_modules()

    @property
    def items(self) -> Items:
        """This process's store. A forked process opens its own. Raises ForeignHost and NewerDatabase."""
        return self._items(os.getpid())

    def _open(self, pid: int) -> Items:
        return Items(Settings.from_environment(), may_be_newer=bool(self.coordinator.documents.node), keeps=True)

    def signature(self, task: str, *args: str) -> Signature:
        return self.app.signature(task, args=args)

    def infrastructure_of(self, component: Component) -> Errors:
        return (*self.infrastructure, *component.infrastructure)

    def run_options(self, component: Component) -> Options:
        """A run outlives its children: in the worst case they run one after the other."""
        rounds = math.ceil(component.most / component.simultaneous_processes) + 1
        return {"max_lifetime": min(component.max_lifetime * rounds, 9e9)}

    def depends_on(self) -> Mapping[str, frozenset[str]]:
        """The types of events that each type of event comes from."""
        return {one.event: one.depends_on for one in self.all()}
