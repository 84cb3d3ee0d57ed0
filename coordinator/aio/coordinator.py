"""The Coordinator for asyncio. None of its calls blocks the event loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from functools import cached_property, partial
from inspect import getattr_static
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from coordinator import coordinator as blocking
from coordinator.aio.bridge import awaited, run
from coordinator.aio.connections import AioConnections
from coordinator.aio.declared import Calls, EntryCalls, PlannerCalls, SorterCalls
from coordinator.aio.held import Grab, Lease
from coordinator.aio.verbs import Awaiting, verb
from coordinator.core.client.client import BulkJob
from coordinator.core.events import event
from coordinator.core.grabs.grab import OnLosing
from coordinator.core.jobs.options import ATTEMPTS, KEEP, Uses
from coordinator.core.jobs.states import Sorted
from coordinator.core.jobs.submission import Submission
from coordinator.core.jobs.validation import checks_arguments
from coordinator.core.settings import GivenSettings
from coordinator.core.store.client import Store
from coordinator.core.store.values import Json
from coordinator.core.threads import connections_closed
from coordinator.errors import SettingsError
from coordinator.ops.verbs.bulk import ActingOn, BulkVerb, Progress
from coordinator.scheduler import steering
from coordinator.sorters import sorter

_IN_ONE_TURN = 100
P = ParamSpec("P")
T = TypeVar("T")


class Entries(EntryCalls):
    """The entries of the schedule for asyncio: the methods of `coordinator.scheduler.steering.Entries`
    as coroutines.
    """

    put = verb(steering.Entries.put)
    remove = verb(steering.Entries.remove)


class Sorter(SorterCalls):
    """A sorter for asyncio: the methods of `coordinator.Sorter` as coroutines.

    `watch` is missing, since it blocks: call it on the sorter of a blocking coordinator, in a thread or a process.
    """

    orders = verb(sorter.Sorter.orders)


class Event(Awaiting):
    """An event for asyncio: `coordinator.core.events.event.Event`, whose reads are coroutines, too."""

    def __init__(self, connections: Callable[[], AioConnections], blocking_event: event.Event) -> None:
        super().__init__(connections, lambda: blocking_event)
        self.name, self.cause = blocking_event.name, blocking_event.cause
        self._event = blocking_event

    set = verb(event.Event.set)

    async def is_set(self) -> bool:
        return await self.at() is not None

    async def value(self) -> Json:
        return await self._run(lambda: self._event.value)

    async def at(self) -> datetime | None:
        return await self._run(lambda: self._event.at)

    async def by(self) -> str | None:
        return await self._run(lambda: self._event.by)

    async def why(self) -> str | None:
        return await self._run(lambda: self._event.why)

    async def waiting(self) -> int:
        return await self._run(lambda: self._event.waiting)


class Coordinator(Calls):
    """The methods of the blocking coordinator `host` as coroutines. Without `host`, a client made of the settings given
    by keyword.

    An instance is cheap: it reads the settings and connects at the first call. It serves any number of tasks and event
    loops. Cancelling a call ends its wait and releases its lock. A submit that is cancelled while its command is under
    way may have been stored, as after StoreUnavailable: give a `job_id`, and submit again under the same id.
    """

    def __init__(self, host: blocking.Coordinator | None = None, **settings: Unpack[GivenSettings]) -> None:
        if host is not None and settings:
            raise SettingsError("give either a coordinator or settings: a given coordinator has its own settings")
        if host is not None and not isinstance(host, blocking.Coordinator):
            raise SettingsError(f"aio.Coordinator takes a coordinator.Coordinator, not {type(host).__name__}")
        super().__init__(lambda: self._connections, lambda: self._sync_proxy)
        self._host = host or blocking.Coordinator(**settings)

    @cached_property
    def _connections(self) -> AioConnections:
        connections = AioConnections(self._host.settings)
        connections.name = self._host.store.connections.name
        return connections

    @cached_property
    def _sync_proxy(self) -> _SyncProxy:
        return _SyncProxy(self._host, self._connections)

    submit = verb(blocking.Coordinator.submit)
    collect = verb(blocking.Coordinator.collect)
    submit_many = verb(blocking.Coordinator.submit_many)
    wait = verb(blocking.Coordinator.wait)
    line = verb(blocking.Coordinator.line)
    acted = verb(blocking.Coordinator.acted)

    def act(self, verb: BulkVerb, **selection: Unpack[ActingOn]) -> AsyncIterator[Progress]:
        """Act on all jobs or lanes that a filter selects; it acts while you iterate over the progress with `async for`.

        See `coordinator.Coordinator.act`.
        """
        return self._progress(lambda: self._sync_proxy.act(verb, **selection))

    async def _progress(self, begin: Callable[[], Iterator[Progress]]) -> AsyncIterator[Progress]:
        steps = await self._run(begin)
        while progress := await self._run(partial(next, steps, None)):
            yield progress

    @cached_property
    def plan(self) -> PlannerCalls:
        """The dry run of each verb: `await coordinator.plan.cancel(id)` returns a Plan of the changes, and changes
        nothing.
        """
        return PlannerCalls(self._connections_of, lambda: self._sync_proxy.plan)

    async def get(self, job_id: str | Submission, timeout: float | None = None) -> object:
        """Wait until a job ends, and return its result. `timeout`: seconds, None = without limit; then it raises
        WaitTimeout. For a job that did not succeed, raises the exception of its task, or JobFailed.
        """
        job = await self.wait(job_id, timeout)
        if job.state == "succeeded":
            return job.result
        raise self._sync_proxy._error_of(job)

    @asynccontextmanager
    async def lock(
        self, name: str | None = None, ttl: float = 30.0, blocking_timeout: float | None = 0.0, *,
        uses: Uses | None = None,
    ) -> AsyncIterator[Lease]:  # fmt: skip
        """Hold the lane `name`, or units of quotas, inside an `async with`, as a job would; gives the lease. See
        `coordinator.Coordinator.lock`.

        `blocking_timeout`: seconds to wait for the lane; **the default, 0, does not wait**; None waits without limit.
        Raises Locked if the lane stays busy. A thread renews the lease of `ttl` seconds, even while the event loop is
        blocked.
        """
        held = self._sync_proxy.lock(name, ttl, blocking_timeout, uses=uses)
        lease = await self._run(held.__enter__)
        try:
            yield Lease(lease)
        except BaseException:
            await run(held.__exit__, *sys.exc_info())
            raise
        await run(held.__exit__, None, None, None)

    def grab(
        self, key: str, instance: str | int | datetime, identifier: str, ttl: float = 30.0,
        on_losing: OnLosing = "wait", keep: float = KEEP, attempts: int = ATTEMPTS,
    ) -> Grab:  # fmt: skip
        """Try to win an instance of a key: one process among all works on it. Await the grab, or use it in `async
        with`.

        The parameters are those of `coordinator.Coordinator.grab`.
        """
        args = key, instance, identifier, ttl, on_losing, keep, attempts
        return Grab(self._connections_of, lambda: self._run(self._sync_proxy.grab, *args))

    def sorter(
        self, name: str, idle_timeout: float = 10.0, max_wait: float | None = None, order: Sorted = "alphabetical"
    ) -> Sorter:
        """Make a sorter, which holds jobs until none came for `idle_timeout` seconds, and then puts them in line,
        sorted.

        Its methods are coroutines. The parameters are those of `coordinator.Coordinator.sorter`.
        """
        blocking_sorter = self._sync_proxy.sorter(name, idle_timeout, max_wait, order)
        return Sorter(self._connections_of, lambda: blocking_sorter)

    def event(self, name: str) -> Event:
        """An event from outside for which jobs wait, as `coordinator.Coordinator.event`. Its methods are coroutines."""
        return Event(self._connections_of, self._sync_proxy.event(name))

    @cached_property
    def entries(self) -> Entries:
        return Entries(self._connections_of, lambda: self._sync_proxy.entries)

    async def aclose(self) -> None:
        """Close the connections of the running event loop to Redis. The next call connects again."""
        await self._connections.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _in_turns(jobs: Iterable[BulkJob]) -> Iterator[BulkJob]:
    """Yield the jobs, and let the event loop run other tasks after each hundred: the check of a job takes about
    20 us.
    """
    for number, job in enumerate(jobs, 1):
        yield job
        if number % _IN_ONE_TURN == 0:
            awaited(asyncio.sleep(0))


class _HostAttribute:
    """The attribute `name` of a `_SyncProxy`. Where jobs run in the submitting thread (`task_always_eager`, or the
    pytest fixture), it is the attribute of the blocking coordinator, else the proxy's own.
    """

    def __init__(self, name: str) -> None:
        # Looked up once, since the search walks all base classes.
        self._name, self._own = name, getattr_static(blocking.Coordinator, name)

    def __get__(self, proxy: _SyncProxy, owner: type[_SyncProxy] | None = None) -> Any:
        host = proxy._host
        if host._is_eager or host._is_inline:
            return getattr(host, self._name)
        return self._own.__get__(proxy, owner)

    def __set__(self, proxy: _SyncProxy, part: object) -> None:
        """Store the proxy's own value. With `task_always_eager` or the pytest fixture, reading the attribute still
        gives the value of the blocking coordinator.
        """
        vars(proxy)[self._name] = part


@checks_arguments
class _SyncProxy(blocking.Coordinator):
    """A blocking coordinator with the settings and tasks of `host`, which calls Redis over asyncio connections. Its
    methods are called in greenlets (`bridge.run`).

    It shares the lease renewer of `host`, whose own threads use blocking connections.
    """

    _core, _locks, _sorters, _grabber = (_HostAttribute(name) for name in ("_core", "_locks", "_sorters", "_grabber"))

    def __init__(self, host: blocking.Coordinator, connections: AioConnections) -> None:
        self._host, self._connections = host, connections
        self.app, self._fair_by, self._own_settings = host.app, host._fair_by, host._own_settings
        self._keyed_tasks, self.extensions = host._keyed_tasks, host.extensions
        self.settings, self.needed_labels, self._renewer = host.settings, host.needed_labels, host._renewer
        self._outboxes = host._outboxes

    @property
    def node(self) -> str:
        return self._host.node

    @cached_property
    def store(self) -> Store:
        return Store(self.settings, self._connections)

    def submit_many(self, jobs: Iterable[BulkJob]) -> list[Submission]:
        return super().submit_many(_in_turns(jobs))

    def _said_of(self, job_id: str) -> str:
        """Ask the database of an outbox in a thread."""
        return awaited(asyncio.to_thread(self._ask_outboxes, job_id)) if self._outboxes else ""

    def _ask_outboxes(self, job_id: str) -> str:
        with connections_closed():
            return self._host._said_of(job_id)

    def _check_open(self) -> None:
        awaited(self._is_open())

    async def _is_open(self) -> None:
        """Raise ShuttingDown after `stop_submitting`. A coroutine, so that the check runs in the caller's greenlet:
        Celery keeps the current task for each greenlet.
        """
        self._host._check_open()

    def _attach(self, submission: Submission) -> Submission:
        """Return `submission` unchanged: with a coordinator attached, its `get` would block the event loop."""
        return submission
