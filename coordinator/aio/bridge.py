"""Runs the library's blocking code for asyncio: in a greenlet, which yields to the loop wherever it has to wait.

So each rule of lanes, locks and grabs is written once. SQLAlchemy's asyncio works in the same way.
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
    """The greenlet of one call. It shares its task's context variables: a lock taken in it is the task's."""

    def __init__(self, function: Callable[..., object]) -> None:
        current = getcurrent()
        super().__init__(function, current)
        self.gr_context = current.gr_context


async def run(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `function` in a greenlet. The loop runs while it waits in `awaited`; a cancellation is raised there."""
    bridge = Bridge(function)
    awaitable = bridge.switch(*args, **kwargs)
    while not bridge.dead:
        try:
            answer = await awaitable
        except BaseException:
            awaitable = bridge.throw(*sys.exc_info())
        else:
            awaitable = bridge.switch(answer)
    return cast(T, awaitable)


def awaited(what: Awaitable[T]) -> T:
    """Wait for `what` and return its result. Works only in code that `run` called."""
    bridge = getcurrent()
    if not isinstance(bridge, Bridge) or bridge.parent is None:
        if hasattr(what, "close"):
            what.close()
        raise CoordinatorError("a call of coordinator.aio is to be awaited: await coordinator.submit(…)")
    return cast(T, bridge.parent.switch(what))
