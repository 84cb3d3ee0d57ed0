"""`Coordinator(app)`: puts the parts into a Celery app and its workers; the one object that users hold."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import Any

import click
from celery import Celery, current_task
from celery.app.task import Task

from coordinator import causes, orders, worker
from coordinator.attempt import Tracers
from coordinator.current import current_job
from coordinator.documents import Documents
from coordinator.doorbells import REDIS_SCHEMES, TASK, Doorbells, merge_transport
from coordinator.drafts import Draft, Place, Usual, check_signature, draft, options_of
from coordinator.errors import SettingsError, ShuttingDown
from coordinator.events import Events
from coordinator.inbox import Inbox, M, register
from coordinator.jobs import Job, Submission
from coordinator.known import check_known
from coordinator.lanes import Lanes
from coordinator.line import Lane
from coordinator.locks import Lease, Locks
from coordinator.nodes import Node, Nodes
from coordinator.notices import Notices, has_results
from coordinator.parked import Parked
from coordinator.runner import Runner
from coordinator.settings import Settings
from coordinator.sorter import Sorter, Sorters, Sorting
from coordinator.store import Store
from coordinator.subresults import tell_parents
from coordinator.warden import Companion

_RUNNER = {
    "shared": False, "bind": True, "ignore_result": True, "send_events": False, "acks_late": False, "rate_limit": None,
}  # fmt: skip


class Coordinator:
    """Keyed jobs for the Celery app `app`; without one, a plain client of the Redis at `url` that submits.

    Connects at the first call. Settings as keyword arguments win over `app.conf` (`coordinator_*`) and the environment
    (`COORDINATOR_*`).

    Ready jobs are taken in turns between the groups of their keys. `fair_by` gives the group of a job's first key; by
    default it is what stands before the key's first `/`, and keys without one are one group.
    """

    def __init__(
        self, app: Celery | None = None, *, fair_by: Callable[[str], str] | None = None, **settings: Any
    ) -> None:
        self.app = app
        self._fair_by = fair_by
        self._given = settings
        self._usuals: dict[str, Usual] = {}
        self._results: dict[str, bool] = {}
        self.incarnation = ""  # of the worker in this process, or that forked it
        self._closed_in: int | None = None  # the pid: a process forked later begins anew
        self.companions: list[Callable[[str], Companion]] = []
        self.schedule_sources: list[Callable[[], Any]] = []
        self.documents = Documents(self)
        self.commands: list[click.Command] = []
        Settings.load(settings, {}, {})
        if app is not None:
            if not app.main:
                raise SettingsError("give the app a name, by which its nodes are known: Celery('shop', …)")
            if getattr(app, "coordinator", None) is not None:
                raise SettingsError(f"the app {app.main!r} has a coordinator already")
            app.coordinator = self
            self._install(app)

    @cached_property
    def settings(self) -> Settings:
        conf = self.app.conf if self.app else {}
        named = {name: conf[name] for name in conf if name.startswith("coordinator_")}
        settings = Settings.load(self._given, named, os.environ)
        if not settings.url and self.app:
            broker = self.app.conf.broker_url or ""
            if broker.startswith(REDIS_SCHEMES):
                given = {**self._given, "url": broker.replace("redis+socket://", "unix://")}
                settings = Settings.load(given, named, os.environ)
        return settings

    @cached_property
    def store(self) -> Store:
        return Store(self.settings)

    @cached_property
    def doorbells(self) -> Doorbells:
        return Doorbells(self._bound)

    @cached_property
    def core(self) -> Lanes:
        return Lanes(self.store, self.doorbells.ring if self.app else None)

    @cached_property
    def notices(self) -> Notices:
        return Notices(self.store, self.core, self._bound)

    @cached_property
    def parked(self) -> Parked:
        return Parked(self.core, self._bound)

    @cached_property
    def _locks(self) -> Locks:
        return Locks(self.store, self.core)

    @cached_property
    def _sorters(self) -> Sorters:
        return Sorters(self.store)

    @property
    def _bound(self) -> Celery:
        if self.app is None:
            raise SettingsError("this coordinator is a plain client: it has no Celery app")
        return self.app

    def submit(self, keys: str | Sequence[str], signature: Mapping[str, Any], **options: Any) -> Submission:
        """Put a job in line. Options and their defaults: `coordinator.drafts.Options`.

        Raises InvalidJob before anything is written; StoreUnavailable(job_id): unknown, ask again with that id.
        """
        return self.core.submit(self._draft(keys, signature, options))

    def submit_many(self, jobs: Iterable[tuple[Any, ...]]) -> list[Submission]:
        """Each job is (keys, signature) or (keys, signature, {options}); all are checked before any is written."""
        return self.core.submit_many([self._draft(job[0], job[1], job[2] if len(job) > 2 else {}) for job in jobs])

    def _draft(self, keys: str | Sequence[str], signature: Mapping[str, Any], options: Mapping[str, Any]) -> Draft:
        wanted = options_of(options)
        given = check_signature(signature)
        if self._closed_in == os.getpid() and not current_task:
            raise ShuttingDown("this process is shutting down: nothing is submitted any more")
        if self.app is None:
            place = Place("", True, lambda step: Usual("celery"), self._fair_by)
        else:
            last = orders.tasks_of(signature)[-1] if signature.get("subtask_type") else signature
            tell = self._tells(last["task"]) and not given.get("ignore_result")
            place = Place(self.app.main, tell, self._usual, self._fair_by)
        made = draft(self.settings, keys, signature, place, wanted, given)
        if job := current_job():
            made = replace(made, fields=(*made.fields, "seldom", 1, "parent", job.id))
        return made

    def close(self) -> None:
        """Shutdown has begun: from here `submit` raises ShuttingDown in this process, but for tasks at work in it.

        A worker that is told to end does so by itself.
        """
        self._closed_in = os.getpid()

    def _usual(self, step: Mapping[str, Any]) -> Usual:
        """What a task has unless its signature says otherwise; read once from task and app."""
        name = step["task"]
        if name not in self._usuals:
            app, task = self._bound, self._task(name)
            limits = (
                getattr(task, limit, None) or app.conf[f"task_{limit}"] for limit in ("time_limit", "soft_time_limit")
            )
            queue = getattr(task, "queue", None) or ("" if app.conf.task_routes else app.conf.task_default_queue)
            self._usuals[name] = Usual(queue, *limits)
        found = self._usuals[name]
        return found if found.queue else replace(found, queue=self._routed(name, step))

    def _task(self, name: str) -> Task | None:
        """None: only nodes have it."""
        check_known(self._bound, self.core, name)
        return self._bound.tasks.get(name)

    def _tells(self, name: str) -> bool:
        if name not in self._results:
            ignored = getattr(self._task(name), "ignore_result", self._bound.conf.task_ignore_result)
            self._results[name] = has_results(self._bound) and not ignored
        return self._results[name]

    def _routed(self, name: str, signature: Mapping[str, Any]) -> str:
        app = self._bound
        route = app.amqp.router.route({}, name, signature.get("args"), signature.get("kwargs"), app.tasks.get(name))
        queue = route.get("queue")
        return str(getattr(queue, "name", queue) or app.conf.task_default_queue)

    def job(self, job_id: str) -> Job:
        return self.core.job(job_id)

    def wait(self, job_id: str, timeout: float | None = None) -> Job:
        return self.core.wait(job_id, timeout)

    def cancel(self, job_id: str, *, why: str = "", by: str | None = None) -> str:
        return self.core.cancel(job_id, why=why, by=by or socket.gethostname())

    def retry(self, job_id: str, *, to: str = "back", why: str = "", by: str | None = None) -> str:
        return self.core.retry(job_id, to=to, why=why, by=by or socket.gethostname())

    def move(
        self, job_id: str, *, priority: int | None = None, to: str = "back", why: str = "", by: str | None = None,
        token: str | None = None,
    ) -> str:  # fmt: skip
        return self.core.move(job_id, priority=priority, to=to, why=why, by=by or socket.gethostname(), token=token)

    def set_limit(self, key: str, limit: int, *, why: str = "", by: str | None = None) -> int:
        return self.core.set_limit(key, limit, why=why, by=by or socket.gethostname())

    def release(self, key: str, *, why: str, by: str | None = None, holder: str = "") -> str | None:
        return self.core.release(key, why=why, by=by or socket.gethostname(), holder=holder)

    def pause(self, key: str, *, why: str = "", by: str | None = None) -> bool:
        return self.core.pause(key, why=why, by=by or socket.gethostname())

    def resume(self, key: str, *, why: str = "", by: str | None = None) -> bool:
        return self.core.resume(key, why=why, by=by or socket.gethostname())

    def why(self, job_id: str) -> list[str]:
        """Why a job is where it is: a chain of causes, each a sentence, down to a root."""
        return causes.why(causes.Look(self.core), job_id)

    def counts(self) -> dict[str, int]:
        return self.core.counts()

    def lane(self, key: str, most: int = 100) -> Lane:
        return self.core.lane(key, most)

    def lanes(self, prefix: str = "", state: str | None = None, most: int = 1000, after: str = "") -> list[Lane]:
        return self.core.lanes(prefix, state, most, after)

    def nodes(self) -> list[Node]:
        return Nodes(self.store).living()

    def drain(self, node: str, *, why: str = "", by: str | None = None) -> bool:
        """Give this node nothing new; what runs there ends, or is handed over after `drain_timeout`, without a loss.

        Also one of that name that comes later, until `undrain`. False: it was drained already.
        """
        return self.core.drain(node, True, why=why, by=by or socket.gethostname())

    def undrain(self, node: str, *, why: str = "", by: str | None = None) -> bool:
        """Whatever waits for such a node rings it. False: it was not drained."""
        return self.core.drain(node, False, why=why, by=by or socket.gethostname())

    def lock(self, name: str, ttl: float = 30.0, wait: float = 0.0) -> AbstractContextManager[Lease]:
        return self._locks.lock(name, ttl, wait)

    def sorter(
        self, name: str, idle_timeout: float = 10.0, max_wait: float | None = None, order: str = "alphabetical"
    ) -> Sorter:
        """Orders that are held until no new one came for `idle_timeout` s, or `max_wait` s after the first.

        Then they are put in line, sorted by their ids; `order`: alphabetical, or natural (2 before 10).
        """
        return Sorter(self._sorters, self._draft, name, idle_timeout, max_wait, order)

    def sorters(self) -> list[Sorting]:
        """Those that hold orders."""
        return self._sorters.all()

    def companion(self, make: Callable[[str], Companion]) -> None:
        """Have every node's warden start `make(node)` beside it."""
        self.companions.append(make)

    def inbox(self, queue: str, model: type[M], handler: Callable[[M], None]) -> None:
        """Have every node's warden take requests from that queue of the broker: see `coordinator.inbox`."""
        register(self._bound, queue, model)

        def make(node: str) -> Inbox[M]:
            every = Nodes(self.store).all
            return Inbox(self._bound, queue, model, handler, node, lambda: [one.name for one in every()])

        self.companion(make)

    def schedule_source(self, fn: Callable[[], Any]) -> Callable[[], Any]:
        """Have beat take entries from `fn` too."""
        self.schedule_sources.append(fn)
        return fn

    def _install(self, app: Celery) -> None:
        app.add_defaults(
            {
                "worker_cancel_long_running_tasks_on_connection_loss": False,
                "broker_connection_retry_on_startup": True,
                "worker_consumer": worker.CONSUMER,
            }
        )
        app.on_after_configure.connect(merge_transport, weak=False)
        tracers: dict[str, tuple[Tracers, Events]] = {}

        def run(task: Task, bell: str) -> int:
            node = task.request.hostname
            if node not in tracers:
                tracers[node] = (Tracers(app, node), Events(app, node))
            return Runner(app, self.core, node, self.incarnation, *tracers[node]).run(bell)

        app.task(run, name=TASK, **_RUNNER)
        worker.bind(app)
        tell_parents(app, lambda: self.core)
