"""`coordinator.aio.Coordinator`: the calls of a Coordinator for asyncio. None of them blocks the loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import cached_property
from typing import Any, ParamSpec, Self, TypeVar, Unpack, cast
from weakref import ref

from coordinator import coordinator as blocking
from coordinator.aio.bridge import awaited, run
from coordinator.aio.connections import AioConnections
from coordinator.aio.held import Grab, Lease
from coordinator.at_hand import AtHand
from coordinator.coordinator import Asked, Keys
from coordinator.errors import SettingsError
from coordinator.fleet.nodes import Node
from coordinator.jobs.options import KEEP, Options
from coordinator.jobs.record import Job
from coordinator.jobs.states import End, LaneState, State
from coordinator.jobs.submission import Submission
from coordinator.lanes.grab import OnLosing
from coordinator.lanes.lane import Lane
from coordinator.lanes.leases import holding
from coordinator.settings import GivenSettings
from coordinator.store.client import Ringer, Store

P = ParamSpec("P")
T = TypeVar("T")
_IN_ONE_TURN = 100
_task: ContextVar[ref[asyncio.Task[object]] | None] = ContextVar("coordinator_task", default=None)


class Coordinator:
    """The calls of `host` for asyncio; they mean, give and raise the same. Without a host, a plain client by settings.

    Cheap to make: it reads the settings and connects at the first call. It serves any number of tasks and loops; each
    loop has two connections to Redis. A call that is cancelled leaves nothing behind: a wait ends, a lock is given up.
    A submit that is cancelled while Redis is asked may have been done, as after StoreUnavailable: name a `job_id`, and
    ask again.
    """

    def __init__(self, host: blocking.Coordinator | None = None, **settings: Unpack[GivenSettings]) -> None:
        if host is not None and settings:
            raise SettingsError("settings belong to the coordinator that is given")
        if host is not None and not isinstance(host, blocking.Coordinator):
            raise SettingsError(f"aio.Coordinator takes a coordinator.Coordinator, not {type(host).__name__}")
        self._host = host or blocking.Coordinator(**settings)

    @cached_property
    def _connections(self) -> AioConnections:
        return AioConnections(self._host.settings)

    @cached_property
    def _twin(self) -> _Twin:
        return _Twin(self._host, self._connections)

    async def submit(self, keys: Keys, signature: Mapping[str, object], **options: Unpack[Options]) -> Submission:
        """See `coordinator.Coordinator.submit`. Ask `job`, `wait` or `get` for the job; its own `get` would block."""
        return await self._run(self._twin.submit, keys, signature, **options)

    async def submit_many(self, jobs: Iterable[Asked]) -> list[Submission]:
        """Submit each (keys, signature) or (keys, signature, {options}), 200 in one round trip."""
        return await self._run(self._twin.submit_many, jobs)

    async def job(self, job_id: str) -> Job:
        """Read a job's record. Raises UnknownJob."""
        return await self._run(self._twin.job, job_id)

    async def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """Wait until a job is over or held, for at most `timeout` seconds, and give its record.

        All waits of a loop share one connection. Raises WaitTimeout (the job goes on), WouldDeadlock, UnknownJob,
        StoreUnavailable.
        """
        return await self._run(self._twin.wait, job_id, timeout)

    async def get(self, job_id: str, timeout: float | None = None) -> object:
        """Wait for a job as `wait` does, and give its result. Raises its error: its own, or JobFailed."""
        job = await self.wait(job_id, timeout)
        if job.state == "succeeded":
            return job.result
        raise self._twin.error_of(job)

    @asynccontextmanager
    async def lock(self, name: str, ttl: float = 30.0, wait: float = 0.0) -> AsyncIterator[Lease]:
        """Hold the lane `name` inside an `async with`, as a job would; give its lease.

        A thread renews it each `ttl` / 3 seconds, also while the loop is blocked. Raises Locked where it is not ours
        within `wait` seconds, LeaseLost at the end where it was lost meanwhile, WouldDeadlock, StoreUnavailable.
        """
        held = self._twin.lock(name, ttl, wait)
        lease = await self._run(held.__enter__)
        try:
            yield Lease(lease)
        except BaseException:
            await run(held.__exit__, *sys.exc_info())
            raise
        await run(held.__exit__, None, None, None)

    def grab(
        self, key: str, instance: str | int | datetime, identifier: str, ttl: float = 30.0,
        on_losing: OnLosing = "incomplete", keep: float = KEEP,
    ) -> Grab:  # fmt: skip
        """Try to win an instance of a key: see `coordinator.Coordinator.grab`. Await it, or enter it with `async with`.

        A thread renews the winner's lease.
        """
        return Grab(lambda: self._twin.grab(key, instance, identifier, ttl, on_losing, keep))

    async def cancel(self, job_id: str, *, why: str = "", by: str | None = None) -> State:
        """End a job, and give its state after the call. Raises UnknownJob."""
        return await self._run(self._twin.cancel, job_id, why=why, by=by)

    async def retry(self, job_id: str, *, to: End = "back", why: str = "", by: str | None = None) -> State:
        """Let a held or retrying job go on; put one that ended badly in line anew. Raises InvalidJob, UnknownJob."""
        return await self._run(self._twin.retry, job_id, to=to, why=why, by=by)

    async def why(self, job_id: str) -> list[str]:
        """Say why a job is where it is, one sentence for each cause. Raises UnknownJob."""
        return await self._run(self._twin.why, job_id)

    async def counts(self) -> dict[str, int]:
        """Count the jobs in each state and each outcome."""
        return await self._run(self._twin.counts)

    async def lane(self, key: str, most: int = 100) -> Lane:
        """Read a lane: its holder, its first `most` jobs, its limit and its pause."""
        return await self._run(self._twin.lane, key, most)

    async def lanes(
        self, prefix: str = "", state: LaneState | None = None, most: int = 1000, after: str = ""
    ) -> list[Lane]:
        """Read a page of the lanes whose keys begin with `prefix`, by key."""
        return await self._run(self._twin.lanes, prefix, state, most, after)

    async def nodes(self) -> list[Node]:
        """Read the nodes that are alive, by name."""
        return await self._run(self._twin.nodes)

    async def aclose(self) -> None:
        """Close the connections of the running loop. The next call opens others."""
        await self._connections.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        await self._connections.here.pace.turn()
        _own_locks_only()
        return await run(function, *args, **kwargs)


def _own_locks_only() -> None:
    """A task begins with a copy of the context of the one that made it, but holds none of its locks."""
    task = asyncio.current_task()
    known = _task.get()
    if known is None or known() is not task:
        _task.set(ref(task) if task else None)
        holding.set(())


def _in_turns(jobs: Iterable[Asked]) -> Iterator[Asked]:
    """To check a job takes about 20 us; the loop has a turn now and then."""
    for number, job in enumerate(jobs, 1):
        yield job
        if number % _IN_ONE_TURN == 0:
            awaited(asyncio.sleep(0))


class _AsHost:
    """The host's, where it runs its jobs in place: an eager app, or a user's suite."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, twin: _Twin, owner: type[_Twin] | None = None) -> Any:
        host = twin._host
        if self._name in vars(host) or (host.app is not None and host.app.conf.task_always_eager):
            return getattr(host, self._name)
        return vars(AtHand)[self._name].__get__(twin, owner)


class _Twin(blocking.Coordinator):
    """A coordinator like its host, but for the connections of its store. Its calls run in `bridge.run`.

    The renewer of leases, which asks Redis from threads of its own, is the host's.
    """

    core, _locks, _sorters = _AsHost("core"), _AsHost("_locks"), _AsHost("_sorters")

    def __init__(self, host: blocking.Coordinator, connections: AioConnections) -> None:
        self._host, self._connections = host, connections
        self.app, self._fair_by, self._given = host.app, host._fair_by, host._given
        self.keyed_tasks = host.keyed_tasks
        self.settings, self.documents, self._renewer = host.settings, host.documents, host._renewer

    @cached_property
    def store(self) -> Store:
        ringer = None if self.app is None else cast(Ringer, self._ring)
        return Store(self.settings, ringer, self._connections)

    def _ring(self, node: str, bell: str) -> None:
        """A broker may be slow: a thread publishes the bell."""
        awaited(asyncio.to_thread(self._host.doorbells.ring, node, bell))

    def submit_many(self, jobs: Iterable[Asked]) -> list[Submission]:
        return super().submit_many(_in_turns(jobs))

    def check_open(self) -> None:
        awaited(self._is_open())

    async def _is_open(self) -> None:
        """In the greenlet of the caller: Celery keeps the task at work for each greenlet."""
        self._host.check_open()

    def _made(self, submission: Submission) -> Submission:
        """Its `get` would block the loop: it has no coordinator to ask."""
        return submission
