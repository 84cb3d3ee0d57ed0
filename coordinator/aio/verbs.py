"""Turns the calls of a blocking object into awaited ones: each in one line, with the call's signature and docstring."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar
from weakref import ref

from coordinator.aio.bridge import run
from coordinator.aio.connections import AioConnections
from coordinator.locks.leases import holding

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
_task: ContextVar[ref[asyncio.Task[object]] | None] = ContextVar("coordinator_task", default=None)


class Awaiting:
    """An object with awaited calls. `twin` returns the blocking object, which asks Redis over `connections`."""

    def __init__(self, connections: Callable[[], AioConnections], twin: Callable[[], object]) -> None:
        self._connections_of, self._twin_of = connections, twin

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        await self._connections_of().here.turn()
        _own_locks_only()
        return await run(function, *args, **kwargs)


def verb(function: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[Awaiting, P], Coroutine[object, object, T]]:
    """The twin's call of this name, awaited."""

    @wraps(function)
    async def call(self: Awaiting, /, *args: P.args, **kwargs: P.kwargs) -> T:
        own: Callable[P, T] = getattr(self._twin_of(), function.__name__)
        return await self._run(own, *args, **kwargs)

    return call


def _own_locks_only() -> None:
    """Drop the locks that a new task has in its context, which is a copy of its parent's: it holds none of them."""
    task = asyncio.current_task()
    known = _task.get()
    if known is None or known() is not task:
        _task.set(ref(task) if task else None)
        holding.set(())
