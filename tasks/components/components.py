"""Declares the components of an app, and defines their tasks and their entries in the schedule.

A beat submits the runs of a component: jobs in no lane, of which one at a time uses the quota `component/<name>`. Under
the lock `SBOI/<name>` a run queries the store for items and submits a child for each. A child stands in the lane
`<name>/<item>`, where it is skipped while another job has the item, and uses the quota `<name>`, which bounds how many
children are at work at once. Then the run parks until all its children have ended; meanwhile other runs poll. So the
lanes show which items a component works on.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Unpack

from celery import signals
from celery.app.task import Task
from sqlalchemy.exc import SQLAlchemyError

from coordinator import Coordinator, Entry, SettingsError, Submission
from coordinator.extending import validation
from tasks.components import child, poll
from tasks.components.declaration import Component, ComponentOptions, Function
from tasks.components.quotas import declare_runs
from tasks.components.registry import POLL, RECORD, WORK, Errors, Registry, run_options
from tasks.database import UnusableDatabase
from tasks.whereabouts import Elsewhere

if TYPE_CHECKING:
    from celery.apps.worker import Worker


class Components(Registry):
    """Declares the components of the coordinator's app.

    `infrastructure`: types of exceptions, in addition to INFRASTRUCTURE, after which a job of any component is tried
    again, since they mean that a service is away.
    """

    def __init__(self, coordinator: Coordinator, *, infrastructure: Errors = ()) -> None:
        super().__init__(coordinator, infrastructure=infrastructure)
        coordinator.schedule_source(self._declared_entries)
        signals.celeryd_init.connect(self._check_database, weak=False)

    def declare(
        self, name: str, version: str, event: str = "", **options: Unpack[ComponentOptions]
    ) -> Callable[[Function], Function]:
        """Return a decorator that declares the function below it as a component. docs/batches.md explains the options.

        `event`: the type of the events that the component appends. Raises SettingsError for an unknown option, an
        invalid value, or a name or type of event that another component has.
        """

        known = ["event", *ComponentOptions.__annotations__]
        if wrong := [word for word in options if word not in known]:
            raise SettingsError(f"component {name!r}: unknown option {wrong[0]!r}{validation.near(wrong[0], known)}")

        def add(function: Function) -> Function:
            component = Component(name, version, event, function, **options)
            for other in self._declared.values():
                if name == other.name:
                    raise SettingsError(f"component {name!r} is declared twice")
                if event == other.event:
                    what = f"component {name!r}: {other.name} makes the event {event} already; give each its own event"
                    raise SettingsError(what)
            self._declared[name] = component
            self._install(component)
            return function

        return add

    def _declared_entries(self) -> tuple[str, Iterator[Entry]]:
        """As `_entries`, once the quota is declared that all runs use: Redis may have lost it."""
        if self.all():
            declare_runs(self.coordinator)
        return self._entries()

    def _entries(self) -> tuple[str, Iterator[Entry]]:
        """Return what beats read: a text that changes when the entries change, and each component's schedule entry."""
        declared = self.all()
        text = repr([(component.name, component.every, run_options(component)) for component in declared])
        return hashlib.sha256(text.encode()).hexdigest()[:20], map(self._entry, declared)

    def _check_database(self, instance: "Worker", **_: object) -> None:
        """Migrate the database's tables when a worker starts. `instance`: the worker.

        Raises SystemExit, the only exception that Celery lets end the worker, if the worker may not change the tables,
        or they are newer than this program. If the database is away, the worker starts, and its jobs are tried again.
        """
        if instance.app is not self.app or not self.all():
            return
        with suppress(SQLAlchemyError, OSError, SettingsError), closing(self.coordinator.store):
            try:
                self.open().engine.dispose()  # close connections: the worker forks, and no fork may inherit one
            except (UnusableDatabase, Elsewhere) as error:
                raise SystemExit(f"this node cannot work on components: {error}") from error

    def _entry(self, component: Component) -> Entry:
        return Entry(component.runs, component.every, f"{POLL}.{component.name}", key=[], submit=run_options(component))

    def _install(self, component: Component) -> None:
        """Define the three tasks of a component in the app: of its runs, of its children, and of their rollbacks."""

        def run() -> list[Submission] | poll.PollResult:
            return poll.poll(self, component)

        def work(task: Task, item: str) -> child.ChildResult:
            return child.work(self, task, component, item)

        def record(item: str) -> child.ChildResult:
            return child.record(self, component, item)

        # shared=False: define the tasks in this app only, not in other Celery apps of this process.
        for kind, function in ((POLL, run), (WORK, work), (RECORD, record)):
            self.app.task(function, name=f"{kind}.{component.name}", bind=kind == WORK, shared=False)
