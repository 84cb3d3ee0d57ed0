"""Makes a coroutine of each verb and reading (operators' commands and queries), and of each plan (a dry run of a verb).

`make generated` writes their types to `declared.pyi`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import wraps
from inspect import isfunction
from typing import Any

from coordinator.aio.verbs import Awaiting, verb
from coordinator.coordinator import Coordinator
from coordinator.core.verbs import Reading
from coordinator.ops.verbs.planner import Planner
from coordinator.scheduler.steering import Entries
from coordinator.sorters.sorter import Sorter


def calls(kind: type) -> Iterator[tuple[str, Callable[..., Any], bool]]:
    """Yield the verbs and readings of the class `kind`; of `Planner`, all public methods. Each is (name, function, True
    if the function uses blocking code that needs a thread).
    """
    for name in dir(kind):
        function = getattr(kind, name)
        declared = getattr(function, "verb", None) or getattr(function, "reading", None)
        if isinstance(declared, Reading):
            yield name, function, declared.blocks
        elif kind is Planner and isfunction(function) and not name.startswith("_"):
            yield name, function, False


def _in_thread(function: Callable[..., object]) -> Callable[..., Coroutine[object, object, object]]:
    """Make a coroutine that calls `function` of the blocking coordinator in a thread, since the function also queries
    other servers than the coordinator's Redis, with blocking code.
    """

    @wraps(function)
    async def call(self: Any, /, *args: object, **kwargs: object) -> object:
        return await asyncio.to_thread(function, self._host, *args, **kwargs)

    return call


def _awaited(kind: type) -> Mapping[str, object]:
    return {name: _in_thread(function) if blocks else verb(function) for name, function, blocks in calls(kind)}


Calls = type(
    "Calls", (Awaiting,), {"__doc__": "The coordinator's verbs and readings, awaited.", **_awaited(Coordinator)}
)
EntryCalls = type(
    "EntryCalls", (Awaiting,), {"__doc__": "The verbs of schedule entries, awaited.", **_awaited(Entries)}
)
SorterCalls = type("SorterCalls", (Awaiting,), {"__doc__": "The verbs of a sorter, awaited.", **_awaited(Sorter)})
PlannerCalls = type("PlannerCalls", (Awaiting,), {"__doc__": "Dry runs of verbs, awaited.", **_awaited(Planner)})
