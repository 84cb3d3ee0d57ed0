"""Runs the library's blocking code under asyncio, in a greenlet that yields to the event loop whenever it must wait.

So the blocking and the asyncio calls share one implementation. SQLAlchemy's asyncio support works in the same way.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar, cast

from coordinator.errors import CoordinatorError, SettingsError

try:
    from greenlet import getcurrent, greenlet
except ImportError as error:
    raise SettingsError("coordinator.aio needs greenlet: pip install 'celery-coordinator[asyncio]'") from error

P = ParamSpec("P")
T = TypeVar("T")


class Bridge(greenlet):
    """The greenlet in which `run` calls one function. It shares the context variables of the calling asyncio task, so
    that a lock acquired in the greenlet belongs to the task.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        current = getcurrent()
        super().__init__(function, current)
        self.gr_context = current.gr_context


async def run(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call the blocking `function` in a greenlet, and return its result. While the function waits in `awaited`, the
    event loop runs other tasks. A cancellation of the calling task is raised inside `function`, from `awaited`.
    """
    bridge = Bridge(function)
    awaitable = bridge.switch(*args, **kwargs)
    while not bridge.dead:
        try:
            result = await awaitable
        except BaseException:
            awaitable = bridge.throw(*sys.exc_info())
        else:
            awaitable = bridge.switch(result)
    return cast(T, awaitable)


def awaited(awaitable: Awaitable[T]) -> T:
    """Wait for `awaitable` from blocking code, and return its result. Raises CoordinatorError outside a call
    of `run`.
    """
    bridge = getcurrent()
    if not isinstance(bridge, Bridge) or bridge.parent is None:
        if hasattr(awaitable, "close"):  # closed, or Python warns of a coroutine that was never awaited
            awaitable.close()
        raise CoordinatorError("a call of coordinator.aio must be awaited: await coordinator.submit(…)")
    return cast(T, bridge.parent.switch(awaitable))
