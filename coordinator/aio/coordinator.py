"""The calls of a Coordinator for asyncio. None of them blocks the loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from functools import cached_property, partial, wraps
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, Unpack, overload

from coordinator.aio.bridge import awaited, run
from coordinator.aio.connections import AioConnections
from coordinator.aio.held import Grab, Lease
from coordinator.aio.verbs import Awaiting, verb
from coordinator.client import coordinator as blocking
from coordinator.client.coordinator import Asked
from coordinator.diagnosis.finding import Finding
from coordinator.errors import SettingsError
from coordinator.grabs.grab import OnLosing
from coordinator.jobs.options import ATTEMPTS, KEEP
from coordinator.jobs.states import Sorted
from coordinator.jobs.submission import Submission
from coordinator.jobs.validation import checks_arguments
from coordinator.lanes.bulk import ActingOn, Progress, Verb
from coordinator.lanes.plan import Plan
from coordinator.scheduler import steering
from coordinator.settings import GivenSettings
from coordinator.sorters import sorter
from coordinator.store.client import Store

_IN_ONE_TURN = 100
P = ParamSpec("P")
T = TypeVar("T")


def _threaded(
    function: Callable[Concatenate[blocking.Coordinator, P], T],
) -> Callable[Concatenate[Coordinator, P], Coroutine[object, object, T]]:
    """The host's call of this name, awaited in a thread: it asks the broker, with code that blocks."""

    @wraps(function)
    async def call(self: Coordinator, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(function, self._host, *args, **kwargs)

    return call


class Entries(Awaiting):
    """`coordinator.entries`, awaited."""

    put = verb(steering.Entries.put)
    remove = verb(steering.Entries.remove)
    pause = verb(steering.Entries.pause)
    resume = verb(steering.Entries.resume)
    skip_next = verb(steering.Entries.skip_next)
    run_now = verb(steering.Entries.run_now)
    change = verb(steering.Entries.change)
    restore = verb(steering.Entries.restore)
    entry = verb(steering.Entries.entry)
    all = verb(steering.Entries.all)
    history = verb(steering.Entries.history)


class Sorter(Awaiting):
    """`coordinator.Sorter`, awaited. Its `watch` blocks: run the plain one's in a thread or a process."""

    add = verb(sorter.Sorter.add)
    flush = verb(sorter.Sorter.flush)
    orders = verb(sorter.Sorter.orders)


class Coordinator(Awaiting):
    """The calls of the coordinator `host` for asyncio, with the same meaning. Without one, a plain client by settings.

    Cheap to make: it reads the settings and connects at the first call. It serves any number of tasks and loops. A call
    that is cancelled leaves nothing behind: a wait ends, a lock is given up. A submit that is cancelled while Redis is
    asked may have been done, as after StoreUnavailable: name a `job_id`, and ask again.
    """

    def __init__(self, host: blocking.Coordinator | None = None, **settings: Unpack[GivenSettings]) -> None:
        if host is not None and settings:
            raise SettingsError("settings belong to the coordinator that is given")
        if host is not None and not isinstance(host, blocking.Coordinator):
            raise SettingsError(f"aio.Coordinator takes a coordinator.Coordinator, not {type(host).__name__}")
        super().__init__(lambda: self._connections, lambda: self._twin)
        self._host = host or blocking.Coordinator(**settings)

    @cached_property
    def _connections(self) -> AioConnections:
        return AioConnections(self._host.settings)

    @cached_property
    def _twin(self) -> _Twin:
        return _Twin(self._host, self._connections)

    submit = verb(blocking.Coordinator.submit)
    submit_many = verb(blocking.Coordinator.submit_many)
    job = verb(blocking.Coordinator.job)
    wait = verb(blocking.Coordinator.wait)
    why = verb(blocking.Coordinator.why)
    jobs = verb(blocking.Coordinator.jobs)
    why_summary = verb(blocking.Coordinator.why_summary)
    counts = verb(blocking.Coordinator.counts)
    rates = verb(blocking.Coordinator.rates)
    lane = verb(blocking.Coordinator.lane)
    lanes = verb(blocking.Coordinator.lanes)
    line = verb(blocking.Coordinator.line)
    contended = verb(blocking.Coordinator.contended)
    locks = verb(blocking.Coordinator.locks)
    nodes = verb(blocking.Coordinator.nodes)
    lost_nodes = verb(blocking.Coordinator.lost_nodes)
    grabs = verb(blocking.Coordinator.grabs)
    sorters = verb(blocking.Coordinator.sorters)
    cancel = verb(blocking.Coordinator.cancel)
    retry = verb(blocking.Coordinator.retry)
    move = verb(blocking.Coordinator.move)
    set_limit = verb(blocking.Coordinator.set_limit)
    release = verb(blocking.Coordinator.release)
    pause = verb(blocking.Coordinator.pause)
    resume = verb(blocking.Coordinator.resume)
    drain = verb(blocking.Coordinator.drain)
    undrain = verb(blocking.Coordinator.undrain)
    retarget = verb(blocking.Coordinator.retarget)
    acted = verb(blocking.Coordinator.acted)
    actions = verb(blocking.Coordinator.actions)
    refused = _threaded(blocking.Coordinator.refused)
    refused_counts = _threaded(blocking.Coordinator.refused_counts)
    requeue = _threaded(blocking.Coordinator.requeue)
    discard = _threaded(blocking.Coordinator.discard)
    release_grab = verb(blocking.Coordinator.release_grab)

    async def doctor(self) -> list[Finding]:
        """See `coordinator.Coordinator.doctor`. It runs in a thread, since extensions and app may block."""
        return await asyncio.to_thread(self._host.doctor)

    @overload
    def act(
        self, verb: Verb, *, dry_run: Literal[False] = False, **selection: Unpack[ActingOn]
    ) -> AsyncIterator[Progress]: ...
    @overload
    def act(
        self, verb: Verb, *, dry_run: Literal[True], **selection: Unpack[ActingOn]
    ) -> Coroutine[object, object, Plan]: ...
    def act(
        self, verb: Verb, *, dry_run: bool = False, **selection: Unpack[ActingOn]
    ) -> AsyncIterator[Progress] | Coroutine[object, object, Plan]:
        """See `coordinator.Coordinator.act`: iterate with `async for`. With `dry_run=True`, await the Plan."""
        if dry_run:
            return self._run(lambda: self._twin.act(verb, dry_run=True, **selection))
        return self._progress(lambda: self._twin.act(verb, **selection))

    async def _progress(self, begin: Callable[[], Iterator[Progress]]) -> AsyncIterator[Progress]:
        steps = await self._run(begin)
        while progress := await self._run(partial(next, steps, None)):
            yield progress

    async def get(self, job_id: str | Submission, timeout: float | None = None) -> object:
        """Wait for a job as `wait` does, and give its result. Raises its error: its own, or JobFailed."""
        job = await self.wait(job_id, timeout)
        if job.state == "succeeded":
            return job.result
        raise self._twin._error_of(job)

    @asynccontextmanager
    async def lock(self, name: str, ttl: float = 30.0, blocking_timeout: float | None = 0.0) -> AsyncIterator[Lease]:
        """See `coordinator.Coordinator.lock`: **the default, 0, does not wait**; None waits for ever.

        A thread renews the lease, also while the loop is blocked.
        """
        held = self._twin.lock(name, ttl, blocking_timeout)
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
        """See `coordinator.Coordinator.grab`. Await it, or enter it with `async with`."""
        args = key, instance, identifier, ttl, on_losing, keep, attempts
        return Grab(self._connections_of, lambda: self._run(self._twin.grab, *args))

    def sorter(
        self, name: str, idle_timeout: float = 10.0, max_wait: float | None = None, order: Sorted = "alphabetical"
    ) -> Sorter:
        """See `coordinator.Coordinator.sorter`; `add` and `orders` are awaited."""
        blocking_sorter = self._twin.sorter(name, idle_timeout, max_wait, order)
        return Sorter(self._connections_of, lambda: blocking_sorter)

    @cached_property
    def entries(self) -> Entries:
        return Entries(self._connections_of, lambda: self._twin.entries)

    async def aclose(self) -> None:
        """Close the connections of the running loop. The next call opens others."""
        await self._connections.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _in_turns(jobs: Iterable[Asked]) -> Iterator[Asked]:
    """Give the loop a turn after each hundred jobs: checking a job takes about 20 us."""
    for number, job in enumerate(jobs, 1):
        yield job
        if number % _IN_ONE_TURN == 0:
            awaited(asyncio.sleep(0))


class _HostAttribute:
    """An attribute of the host where jobs run in the submitting thread (eager app, user's suite), else of the twin."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, twin: _Twin, owner: type[_Twin] | None = None) -> Any:
        host = twin._host
        if host._is_eager or host._is_inline:
            return getattr(host, self._name)
        return vars(blocking.Coordinator)[self._name].__get__(twin, owner)

    def __set__(self, twin: _Twin, part: object) -> None:
        """Keep the twin's part. `__get__` still prefers the host's where that counts."""
        vars(twin)[self._name] = part


@checks_arguments
class _Twin(blocking.Coordinator):
    """A coordinator like its host, but for the connections of its store. Its calls run in `bridge.run`.

    The renewer of leases, which asks Redis from threads of its own, is the host's.
    """

    _core, _locks, _sorters, _grabber = (_HostAttribute(name) for name in ("_core", "_locks", "_sorters", "_grabber"))

    def __init__(self, host: blocking.Coordinator, connections: AioConnections) -> None:
        self._host, self._connections = host, connections
        self.app, self._fair_by, self._own_settings = host.app, host._fair_by, host._own_settings
        self._keyed_tasks, self.extensions = host._keyed_tasks, host.extensions
        self.settings, self.needed_labels, self._renewer = host.settings, host.needed_labels, host._renewer

    @property
    def node(self) -> str:
        return self._host.node

    @cached_property
    def store(self) -> Store:
        return Store(self.settings, self._connections)

    def submit_many(self, jobs: Iterable[Asked]) -> list[Submission]:
        return super().submit_many(_in_turns(jobs))

    def _check_open(self) -> None:
        awaited(self._is_open())

    async def _is_open(self) -> None:
        """Run in the caller's greenlet, since Celery keeps the task at work for each greenlet."""
        self._host._check_open()

    def _attach(self, submission: Submission) -> Submission:
        """Leave the submission without a coordinator, since its `get` would block the loop."""
        return submission
