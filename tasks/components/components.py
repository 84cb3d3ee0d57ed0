"""The components of an app: declared once, known by name, polled by the clock of the fleet.

A run of a component is a job on the lane `component/<name>`. Under the lock `SBOI/<name>` it asks the store for items
and submits a job for each. Such a child stands in two lanes: in `<name>`, whose limit says how many of them run at
once, and in `<name>/<item>`, where it is skipped while somebody works on the item. Then the run parks until all its
children have ended. So the lanes say at any moment which items a component works on.
"""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from celery import signals
from celery.app.task import Task
from sqlalchemy.exc import SQLAlchemyError

from coordinator import Coordinator, Submission
from coordinator.scheduler.entries import Entry
from tasks.batches import Items
from tasks.components import child, poll
from tasks.components.declaration import Component
from tasks.components.registry import POLL, RECORD, WORK, Errors, Registry
from tasks.database import ForeignHost, NewerDatabase, OldDatabase
from tasks.settings import Settings

if TYPE_CHECKING:
    from celery.apps.worker import Worker


class Components(Registry):
    """Those of one app: their tasks, and their entries of its schedule."""

    def __init__(self, coordinator: Coordinator, *, infrastructure: Errors = ()) -> None:
        super().__init__(coordinator, infrastructure=infrastructure)
        coordinator.schedule_source(self._entries)
        signals.celeryd_init.connect(self._look_at_the_store, weak=False)
        self._install()

    def _entries(self) -> tuple[str, Iterator[Entry]]:
        """For the beats: one entry for each component."""
        found = self.all()
        text = repr([(one.name, one.every, sorted(self.run_options(one).items())) for one in found])
        return hashlib.sha256(text.encode()).hexdigest()[:20], map(self._entry, found)

    def _look_at_the_store(self, instance: "Worker", **_: object) -> None:
        """A node of this app brings the tables up to date. It does not start where it may not, or where they are newer.

        Where the store is away, the node starts, and its children wait. Celery lets only SystemExit through.
        """
        if instance.app is not self.app or not self.all():
            return
        with suppress(SQLAlchemyError, OSError):
            try:
                Items(Settings.from_environment()).engine.dispose()  # a fork must inherit none of it
            except (ForeignHost, NewerDatabase, OldDatabase) as error:
                raise SystemExit(f"this node cannot work on components: {error}") from error

    def _entry(self, component: Component) -> Entry:
        return Entry(
            component.run_lane,
            component.every,
            POLL,
            (component.name,),
            key=component.run_lane,
            when_busy="skip",
            submit=self.run_options(component),
        )

    def _install(self) -> None:
        """Make the tasks of the app."""

        def run(name: str) -> list[Submission] | poll.Polled:
            return poll.poll(self, name)

        def work(task: Task, name: str, item: str) -> child.Told:
            return child.work(self, task, name, item)

        def record(name: str, item: str) -> child.Told:
            return child.record(self, name, item)

        # Celery would share them with all apps of the process, which have components of their own.
        self.app.task(run, name=POLL, shared=False)
        self.app.task(work, name=WORK, bind=True, shared=False)
        self.app.task(record, name=RECORD, shared=False)
