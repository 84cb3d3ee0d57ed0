"""The components of an app: their tasks, and their entries in the schedule.

A beat submits the runs of a component, each a job on the lane `component/<name>`. Under the lock `SBOI/<name>` a run
queries the store for items and submits a child for each. A child stands in two lanes: `<name>`, whose limit bounds how
many children run at once, and `<name>/<item>`, where it is skipped while another job has the item. Then the run parks
until all its children have ended; meanwhile other runs poll. So the lanes show which items a component works on.
"""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from celery import signals
from celery.app.task import Task
from sqlalchemy.exc import SQLAlchemyError

from coordinator import Coordinator, Entry, Submission
from tasks.batches import Items
from tasks.components import child, poll
from tasks.components.declaration import Component
from tasks.components.registry import OF_A_RUN, POLL, RECORD, WORK, Errors, Registry
from tasks.database import UnusableDatabase
from tasks.settings import Settings

if TYPE_CHECKING:
    from celery.apps.worker import Worker


class Components(Registry):
    """The components of one app."""

    def __init__(self, coordinator: Coordinator, *, infrastructure: Errors = ()) -> None:
        super().__init__(coordinator, infrastructure=infrastructure)
        coordinator.schedule_source(self._entries)
        signals.celeryd_init.connect(self._check_database, weak=False)
        self._install()

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
        with suppress(SQLAlchemyError, OSError):
            try:
                Items(Settings.from_environment()).engine.dispose()  # a fork must not inherit connections
            except UnusableDatabase as error:
                raise SystemExit(f"this node cannot work on components: {error}") from error

    def _entry(self, component: Component) -> Entry:
        return Entry(
            component.run_lane,
            component.every,
            POLL,
            (component.name,),
            key=component.run_lane,
            when_busy="skip",
            submit=OF_A_RUN,
        )

    def _install(self) -> None:
        """Define the tasks in the app."""

        def run(name: str) -> list[Submission] | poll.PollResult:
            return poll.poll(self, name)

        def work(task: Task, name: str, item: str) -> child.ChildResult:
            return child.work(self, task, name, item)

        def record(name: str, item: str) -> child.ChildResult:
            return child.record(self, name, item)

        # shared=False: other apps in this process have their own components.
        self.app.task(run, name=POLL, shared=False)
        self.app.task(work, name=WORK, bind=True, shared=False)
        self.app.task(record, name=RECORD, shared=False)
