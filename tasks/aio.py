"""The service's commands as coroutines for asyncio. Each runs in a thread, since SQL, LDAP and the broker block."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import ParamSpec, TypeVar

from tasks import members
from tasks.components import look

P = ParamSpec("P")
T = TypeVar("T")


def _threaded(act: Callable[P, T]) -> Callable[P, Coroutine[object, object, T]]:
    @wraps(act)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(act, *args, **kwargs)

    return call


refresh = _threaded(members.refresh)
backfill = _threaded(members.backfill)
add = _threaded(members.add)
approve = _threaded(members.approve)
suspend = _threaded(members.suspend)
reset = _threaded(members.reset)
remove = _threaded(members.remove)
purge = _threaded(members.purge)

restart_item = _threaded(look.restart)
remove_event = _threaded(look.remove)
append_event = _threaded(look.append)
prioritise_item = _threaded(look.prioritise)
stop_item = _threaded(look.stop)
approve_batch = _threaded(look.approve)
