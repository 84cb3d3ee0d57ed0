"""A wrong argument of any public call is one of the documented errors, which names the argument, or is no argument."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery

from coordinator import Coordinator, CoordinatorError, Entry, Extension, InvalidJob
from coordinator.aio import Coordinator as AioCoordinator
from tests.harness.redis import RedisServer

WORK = {"task": "shop.work", "args": [], "options": {}}
WRONG = (None, 5, -1, 1.5, True, "", [], {}, object(), b"x")
RIGHT: dict[str, Any] = {
    "keys": "k", "signature": WORK, "jobs": [], "job_id": "the job", "job": None, "key": "k", "name": "an entry",
    "entry": Entry("another", 3600, "shop.work"), "instance": "1", "identifier": "me", "on_losing": "complete",
    "order_id": "1", "node": "a node", "old": "shop.work", "new": "shop.work", "group": "g", "weight": 2.0,
    "schedule": 60, "make": len, "fn": len, "handler": len, "queue": "requests", "model": None, "timeout": 0.0,
    "prefix": "", "code": "entry.late",
    "directory": "/nonexistent", "extension": Extension("own"),
    "act": "count", "verb": "cancel", "kind": "shelf", "request_id": "1", "id": "1",
    "since": datetime.now(UTC) - timedelta(days=1),
}  # fmt: skip
AT_ONCE: dict[str, Any] = {"timeout": 0.0, "stop": threading.Event()}
AT_ONCE["stop"].set()
RIGHT_ALSO = {  # these wait without end, or ask Django, which is not set up
    *((call, "timeout", end) for call in ("wait", "get") for end in ("None", "5", "1.5")),
    ("watch", "stop", "None"),
    ("submit_on_commit", "session", "None"), ("submit_on_commit", "using", "None"), ("submit_on_commit", "using", "''"),
    ("submit_on_commit", "outbox", "True"),
}  # fmt: skip


@pytest.fixture
def app(redis_server: RedisServer, prefix: str) -> Iterator[Any]:
    app: Any = Celery("shop", broker="memory://", set_as_current=False)
    app.task(print, name="shop.work", shared=False)
    coordinator = Coordinator(app, url=redis_server.url(0), prefix=prefix, timeout=10)
    coordinator.entries.put(Entry("an entry", 3600, "shop.work"))
    coordinator.submit("k", WORK, job_id="the job")
    RIGHT["lane"] = coordinator.lane("k")
    yield app
    coordinator.entries.remove("an entry")
    coordinator.close()
    app.close()


def calls(*objects: object) -> Iterator[tuple[Callable[..., Any], str]]:
    """Each public call of these, with each of its parameters that has a name."""
    for one in objects:
        for name, call in inspect.getmembers(one, callable):
            if name.startswith("_") or isinstance(inspect.getattr_static(type(one), name, None), property):
                continue
            if not inspect.ismethod(call):
                continue
            for parameter in inspect.signature(call).parameters.values():
                if parameter.kind is not parameter.VAR_KEYWORD:
                    yield call, parameter.name


def arguments(call: Callable[..., Any]) -> dict[str, Any]:
    needed = inspect.signature(call).parameters.values()
    given = {
        one.name: RIGHT[one.name] for one in needed if one.default is one.empty and one.kind is not one.VAR_KEYWORD
    }
    return given | {name: value for name, value in AT_ONCE.items() if name in inspect.signature(call).parameters}


def outcome(loop: asyncio.Runner, call: Callable[..., Any], **given: Any) -> str:
    """Nothing, where it went well or with an error of ours that has a text."""
    try:
        result = call(**given)
        if inspect.isawaitable(result) or isinstance(result, AbstractAsyncContextManager):
            loop.run(_awaited(result))
        elif isinstance(result, AbstractContextManager) and call.__name__ == "lock":
            with result:
                pass
    except CoordinatorError as error:
        return "" if str(error) else f"{type(error).__name__} without a text"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


async def _awaited(given: Any) -> None:
    if inspect.isawaitable(given):
        await given
    else:
        async with given:
            pass


@pytest.mark.parametrize("awaited", [False, True], ids=["blocking", "asyncio"])
def test_a_wrong_argument_of_a_call_is_an_error_of_ours(app: Any, awaited: bool) -> None:
    coordinator = AioCoordinator(app.coordinator) if awaited else app.coordinator
    asked = [coordinator, coordinator.entries, coordinator.sorter("s")]
    if not awaited:
        winner = coordinator.grab("g", "1", "me")
        asked.append(coordinator.grab("g", "1", "you", on_losing="incomplete"))
    bad = []
    with asyncio.Runner() as loop:
        for call, name in calls(*asked):
            for wrong in WRONG:
                if (call.__name__, name, repr(wrong)) not in RIGHT_ALSO:
                    said = outcome(loop, call, **arguments(call) | {name: wrong})
                    bad += [f"{call.__qualname__}({name}={wrong!r}): {said}"] if said else []
        if awaited:
            loop.run(coordinator.aclose())
    assert not bad, "\n".join(bad)
    if not awaited:
        winner.complete()


def test_a_grab_ends_with_a_value_that_has_a_json_form(app: Any) -> None:
    grab = app.coordinator.grab("g", "1", "me")
    for end in (grab.complete, grab.fail):
        with pytest.raises(InvalidJob, match=r"grab g 1: <object .*> has no JSON form"):
            end(object())
    grab.complete(5)
