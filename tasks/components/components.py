"""The components of an app: their tasks, and their entries in the schedule.

A beat submits the runs of a component, each a job on the lane `component/<name>`. Under the lock `SBOI/<name>` a run
queries the store for items and submits a child for each. A child stands in two lanes: `<name>`, whose limit bounds how
many children run at once, and `<name>/<item>`, where it is skipped while another job has the item. Then the run parks
until all its children have ended; meanwhile other runs poll. So the lanes show which items a component works on.
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
from tasks.components.registry import OF_A_RUN, POLL, RECORD, WORK, Errors, Registry
from tasks.database import UnusableDatabase
from tasks.whereabouts import Elsewhere

if TYPE_CHECKING:
    from celery.apps.worker import Worker


class Components(Registry):
    """Declares the components of one app."""

    def __init__(self, coordinator: Coordinator, *, infrastructure: Errors = ()) -> None:
        super().__init__(coordinator, infrastructure=infrastructure)
        coordinator.schedule_source(self._entries)
        signals.celeryd_init.connect(self._check_database, weak=False)

    def declare(
        self, name: str, version: str, event: str = "", **options: Unpack[ComponentOptions]
    ) -> Callable[[Function], Function]:
        """A decorator that declares its function as a component and returns it. docs/batches.md explains the options.

        Raises SettingsError for a word that does not fit, and for a second declaration of a name or of an event type.
        """

        known = ["event", *ComponentOptions.__annotations__]
        if wrong := [word for word in options if word not in known]:
            raise SettingsError(f"component {name!r}: it has no word {wrong[0]!r}{validation.near(wrong[0], known)}")

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

    def _entries(self) -> tuple[str, Iterator[Entry]]:
        """A version, and a schedule entry for each component. Beats call this."""
        declared = self.all()
        text = repr([(component.name, component.every, OF_A_RUN) for component in declared])
        return hashlib.sha256(text.encode()).hexdigest()[:20], map(self._entry, declared)

    def _check_database(self, instance: "Worker", **_: object) -> None:
        """Bring the tables up to date. The node does not start where this is not allowed, or the tables are newer.

        Where the database is away, the node starts, and its children wait. Celery lets only SystemExit through.
        """
        if instance.app is not self.app or not self.all():
            return
        with suppress(SQLAlchemyError, OSError, SettingsError), closing(self.coordinator.store):
            try:
                self.open().engine.dispose()  # a fork must not inherit connections
            except (UnusableDatabase, Elsewhere) as error:
                raise SystemExit(f"this node cannot work on components: {error}") from error

    def _entry(self, component: Component) -> Entry:
        return Entry(
            component.run_lane,
            component.every,
            f"{POLL}.{component.name}",
            key=component.run_lane,
            when_busy="skip",
            submit=OF_A_RUN,
        )

    def _install(self, component: Component) -> None:
        """Define the component's tasks in the app."""

        def run() -> list[Submission] | poll.PollResult:
            return poll.poll(self, component)

        def work(task: Task, item: str) -> child.ChildResult:
            return child.work(self, task, component, item)

        def record(item: str) -> child.ChildResult:
            return child.record(self, component, item)

        # shared=False: other apps in this process have their own components.
        for kind, function in ((POLL, run), (WORK, work), (RECORD, record)):
            self.app.task(function, name=f"{kind}.{component.name}", bind=kind == WORK, shared=False)
