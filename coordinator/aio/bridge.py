"""From the library's code to asyncio: it runs as it is, in a greenlet, which gives way where it has to wait.

So each rule of lanes, locks and grabs is written once. SQLAlchemy's asyncio works in the same way.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar, cast

from coordinator.errors import CoordinatorError, SettingsError

try:
    from greenlet import getcurrent, greenlet
except ImportError as error:
    raise SettingsError("coordinator.aio needs greenlet: pip install 'celery-coordinator[asyncio]'") from error

P = ParamSpec("P")
T = TypeVar("T")


class _Bridge(greenlet):
    """One call of the library. It shares the context variables of its task: a lock taken in it is the task's."""

    def __init__(self, function: Callable[..., Any]) -> None:
        current = getcurrent()
        super().__init__(function, current)
        self.gr_context = current.gr_context


async def run(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `function`; the loop goes on wherever it comes to `awaited`. A cancellation is raised there."""
    bridge = _Bridge(function)
    told = bridge.switch(*args, **kwargs)
    while not bridge.dead:
        try:
            answer = await told
        except BaseException:
            told = bridge.throw(*sys.exc_info())
        else:
            told = bridge.switch(answer)
    return cast(T, told)


def awaited(what: Awaitable[T]) -> T:
    """The result of `what`, in a function that `run` calls."""
    bridge = getcurrent()
    if not isinstance(bridge, _Bridge) or bridge.parent is None:
        if hasattr(what, "close"):
            what.close()
        raise CoordinatorError("a call of coordinator.aio is to be awaited: await coordinator.submit(…)")
    return cast(T, bridge.parent.switch(what))
