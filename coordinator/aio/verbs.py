"""Makes a coroutine of a blocking method, with the same signature and docstring: `submit
= verb(Coordinator.submit)`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar
from weakref import ref

from coordinator.aio.bridge import run
from coordinator.aio.connections import AioConnections
from coordinator.core.locks.leases import holding

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
_task: ContextVar[ref[asyncio.Task[object]] | None] = ContextVar("coordinator_task", default=None)


class Awaiting:
    """Base class of objects whose methods are coroutines, made by `verb`. `sync_proxy()` returns the object with the
    blocking methods; `connections()` returns the asyncio connections over which that object calls Redis.
    """

    def __init__(self, connections: Callable[[], AioConnections], sync_proxy: Callable[[], object]) -> None:
        self._connections_of, self._sync_proxy_of = connections, sync_proxy

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        await self._connections_of().here.turn()
        _own_locks_only()
        return await run(function, *args, **kwargs)


def verb(function: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[Awaiting, P], Coroutine[object, object, T]]:
    """Make a coroutine that calls the blocking method `function` of the object behind an `Awaiting`."""

    @wraps(function)
    async def call(self: Awaiting, /, *args: P.args, **kwargs: P.kwargs) -> T:
        own: Callable[P, T] = getattr(self._sync_proxy_of(), function.__name__)
        return await self._run(own, *args, **kwargs)

    return call


def _own_locks_only() -> None:
    """Empty the list of held locks in the context of a new asyncio task. asyncio copied the context from the parent
    task, whose locks the new task does not hold.
    """
    task = asyncio.current_task()
    known = _task.get()
    if known is None or known() is not task:
        _task.set(ref(task) if task else None)
        holding.set(())
