"""Defines `Coordinator`, the object through which users of the library do everything. `Coordinator(app)` also installs
the signal handlers and worker components of the library into a Celery app.

Most modules are imported inside functions, so that a process that only submits jobs starts within 0.1 s and 20 MB.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Unpack

from coordinator.core.jobs.validation import checks_arguments, shown
from coordinator.errors import InvalidJob, SettingsError
from coordinator.ops.extension import Extension
from coordinator.ops.readings import Readings
from coordinator.ops.verbs.findings import FindingVerbs
from coordinator.ops.verbs.lanes import LaneVerbs
from coordinator.ops.verbs.nodes import NodeVerbs
from coordinator.ops.verbs.quotas import QuotaVerbs
from coordinator.ops.verbs.requests import RequestVerbs

if TYPE_CHECKING:
    from celery import Celery
    from sqlalchemy import Engine, Table

    from coordinator.core.finding import Finding
    from coordinator.core.fleet.status_file import StatusFile
    from coordinator.core.jobs.states import Sorted
    from coordinator.core.maintenance.duties import NodePlugin
    from coordinator.core.maintenance.parked import Parked
    from coordinator.core.maintenance.results import Results
    from coordinator.core.runner.runner import WorkerContext
    from coordinator.core.settings import GivenSettings
    from coordinator.core.store.client import Store
    from coordinator.inbox.inbox import M
    from coordinator.ops.alerts import AlertReports
    from coordinator.scheduler.sources import Source
    from coordinator.sorters.sorter import Sorter


@checks_arguments
class Coordinator(Readings, LaneVerbs, QuotaVerbs, NodeVerbs, RequestVerbs, FindingVerbs):
    """Keyed jobs for the Celery app `app`; without one, a plain client of the Redis at `url` that submits.

    Connects to Redis at the first call. Settings as keyword arguments win over `app.conf` (`coordinator_*`) and the
    environment (`COORDINATOR_*`). Groups of keys have fair shares of the slots, by weight, so that no group starves.
    `fair_by(key)` returns the group of a job by the job's first key; by default, the group is the text before the first
    `/` of the key, and all keys without a `/` form one group.
    """

    def __init__(
        self, app: Celery | None = None, *, fair_by: Callable[[str], str] | None = None,
        **settings: Unpack[GivenSettings],
    ) -> None:  # fmt: skip
        super().__init__(app, fair_by=fair_by, **settings)
        self._incarnation = ""  # id of one run of the worker, also in its pool processes; "" outside workers
        self._status_file: StatusFile | None = None  # shared by the worker and its pool processes; None outside workers
        self._cannot_run_jobs = False  # True in a worker that can run no jobs, for example without a Redis
        self._one_job_per_runner = False  # True where the pool replaces its processes (--max-tasks-per-child)
        self._node_plugins: list[Callable[[str], NodePlugin]] = []
        self._schedule_sources: list[Source] = []
        self.needed_labels: dict[str, Callable[[Store], list[str]]] = {}
        self.extensions: list[Extension] = []
        if app is not None and not _is_app(app):
            raise SettingsError(
                "the first argument is not a Celery app; without an app, name the Redis: Coordinator(url='redis://…')"
            )
        if app is not None:
            if not app.main:
                raise SettingsError("the Celery app has no name, which its nodes are known by: Celery('shop', …)")
            if getattr(app, "coordinator", None) is not None:
                raise SettingsError(f"the app {app.main!r} has a coordinator already")
            app.coordinator = self
            self._install(app)

    def sorter(
        self, name: str, idle_timeout: float = 10.0, max_wait: float | None = None, order: Sorted = "alphabetical"
    ) -> Sorter:
        """Create a sorter, which holds jobs (orders) until none was added for `idle_timeout` seconds, but not longer
        than `max_wait` seconds after the first (None: no bound). A supervisor then puts the jobs in line, sorted by
        their ids: `order="alphabetical"`, or `"natural"` (2 before 10). Sorters of the same name share their orders,
        which Redis stores. Raises InvalidJob for a wrong argument.
        """
        from coordinator.sorters.sorter import Sorter

        return Sorter(self._sorters, self._request, name, idle_timeout, max_wait, order)

    def _findings_of_app(self) -> Iterator[Finding]:
        from coordinator.ops.diagnosis.on_call import of_refused

        yield from super()._findings_of_app()
        if self.app is not None:
            yield from of_refused(self.refused_counts)

    def extend(self, extension: Extension) -> None:
        """Add commands, causes for `why`, findings for `doctor`, metrics and dashboard pages of the app. Raises
        InvalidJob where `extension` is not an Extension.
        """
        if not isinstance(extension, Extension):
            raise InvalidJob(f"extend takes an Extension, not {shown(extension)}")
        self.extensions.append(extension)

    def node_plugin(self, make: Callable[[str], NodePlugin]) -> None:
        """Have each node of the app run the plugin that `make(node)` returns, in its maintenance process beside the
        worker. `node`: the name of the node. Each call of `node_plugin` adds another plugin.
        """
        self._node_plugins.append(make)

    def inbox(self, queue: str, model: type[M], handler: Callable[[M], None]) -> None:
        """Have each node of the app consume requests from the broker's queue `queue`, as `coordinator.inbox` describes.

        The node validates a request with the pydantic `model` and calls `handler` with the result, at least once for
        each request. Raises SettingsError if `model` is not a pydantic model that forbids unknown fields.
        """
        from coordinator.inbox.inbox import inbox_maker

        self.node_plugin(inbox_maker(self._bound, queue, model, handler, lambda: self.store))

    def outbox(self, *, using: str | None = None, table: Table | None = None, engine: Engine | None = None) -> None:
        """Have each node of the app submit the jobs that transactions wrote with `submit_on_commit(…, outbox=True)`.

        The table is Django's, of the app `coordinator.django`, in the database `using` (None: the default one); or
        SQLAlchemy's, `outbox_table(metadata)`, which the nodes read through `engine`. Each call declares one more
        outbox; SQLAlchemy has one at most. Raises SettingsError.
        """
        from coordinator.outbox.outbox import declare

        box = declare(self._bound.main or "", self._outboxes, using, table, engine, lambda: self.store)
        self.extend(Extension("outbox", findings=box.findings))

        def relay(node: str) -> NodePlugin:
            from coordinator.outbox.relay import Relay

            return Relay(box, self.store, self._lanes, self._locks)

        self.node_plugin(relay)

    def schedule_source(self, fn: Source) -> Source:
        """Have each beat of the app call `fn()` for further entries of the schedule. Returns `fn`, for use as a
        decorator.
        """
        self._schedule_sources.append(fn)
        return fn

    @cached_property
    def _results(self) -> Results:
        from coordinator.core.maintenance.results import Results

        return Results(self.store, self._lanes, self._bound)

    @cached_property
    def _parked(self) -> Parked:
        from coordinator.core.maintenance.parked import Parked

        return Parked(self._lanes, self._bound)

    @cached_property
    def _alerts(self) -> AlertReports:
        from coordinator.ops.alerts import AlertReports

        return AlertReports(self.store, self._lanes, self._bound)

    def _worker_context(self) -> WorkerContext:
        from coordinator.core.runner.runner import WorkerContext

        assert self._status_file, "only a worker runs jobs"
        return WorkerContext(self.node, self._lanes, self._incarnation, self._status_file, self._one_job_per_runner)

    def _queues_of(self, tasks: Iterable[str]) -> dict[str, str]:
        """Return task names and queues, for those of `tasks` that do not go to the app's default queue."""
        from coordinator.core.client.task_defaults import queues_of

        return queues_of(self._bound, tasks)

    def _install(self, app: Celery) -> None:
        import coordinator.timed_out  # noqa: F401  # Celery rebuilds a stored TimedOut only if its module is loaded
        from coordinator.core.async_tasks.tasks import AsyncTasks
        from coordinator.core.broker import add_ours
        from coordinator.core.keyed_task.calls import KeyedTasks
        from coordinator.core.worker.binding import bind

        app.on_after_configure.connect(add_ours, weak=False)
        if app.configured:
            add_ours(app)
        bind(app)
        self._keyed_tasks = KeyedTasks(app, self)
        self._keyed_tasks.install()
        AsyncTasks(app).install()


def _is_app(app: object) -> bool:
    """True if `app` is a Celery app. Does not import Celery: without `celery.app.base`, no Celery app can exist."""
    base = sys.modules.get("celery.app.base")
    return base is not None and isinstance(app, base.Celery)
