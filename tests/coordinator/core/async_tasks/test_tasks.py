"""A task that is `async def` runs in a loop, with all that Celery puts around a task.

`way`: its loop runs in the thread that runs the task, or has a thread of its own, as where asgiref is loaded.
"""

import asyncio
import contextvars
import gc
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from celery import Celery, Task, shared_task
from celery._state import _set_task_join_will_block
from celery.exceptions import SoftTimeLimitExceeded
from pydantic import BaseModel

from coordinator import Coordinator, NoRetry, current_job
from coordinator.local.redis import free_port
from tests.harness.waiting import wait_until

var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="clean")


@pytest.fixture(params=["here", "apart"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "here":
        monkeypatch.delitem(sys.modules, "asgiref.sync")
    return str(request.param)


@pytest.fixture
def app() -> Iterator[Any]:
    app = Celery("yard", broker=f"redis://127.0.0.1:{free_port()}/0", set_as_current=False)
    app.conf.task_always_eager = True
    Coordinator(app)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield app
    _set_task_join_will_block(False)  # as left behind by a SystemExit
    app.close()


def both(task: Any, *args: Any) -> Any:
    """The result of the task as an ordinary task, which is that of the same job."""
    plain = task.delay(*args).get()
    assert task.app.coordinator.submit("k", task.s(*args)).get() == plain
    return plain


class Order(BaseModel):
    number: int


def test_all_that_celery_puts_around_a_task_works(app: Any, way: str) -> None:
    tries: list[int] = []

    @app.task(shared=False, bind=True)
    async def bound(self: Any, number: int) -> list[Any]:
        await asyncio.sleep(0)
        return [self.name.rpartition(".")[2], list(self.request.args), number, app.current_task is not None]

    @app.task(shared=False, pydantic=True)
    async def ship(order: Order) -> Order:
        await asyncio.sleep(0)
        return Order(number=order.number + 1)

    @app.task(shared=False, autoretry_for=(ValueError,), default_retry_delay=0)
    async def again() -> int:
        await asyncio.sleep(0)
        tries.append(1)
        if len(tries) % 2:
            raise ValueError
        return 7

    @app.task(shared=False, bind=True, default_retry_delay=0)
    async def retried(self: Any) -> int:
        await asyncio.sleep(0)
        return int(self.request.retries) if self.request.retries else self.retry()

    assert both(bound, 3) == ["bound", [3], 3, True]
    assert both(ship, {"number": 1}) == {"number": 2}
    assert both(again) == 7
    assert both(retried) == 1
    with pytest.raises(TypeError, match="number"):
        bound.delay()


class Old(Task):
    name = "early.old"

    async def run(self) -> str:
        return "old"


class Wrapping(Task):
    async def __call__(self, *args: Any) -> str:
        return f"in call {await self.run(*args)}"


class Running(Task):
    def __call__(self, *args: Any) -> Any:
        return asyncio.run(self.run(*args))


def test_an_async_task_is_one_however_it_is_declared() -> None:
    app = Celery("early", broker=f"redis://127.0.0.1:{free_port()}/0", set_as_current=False)
    app.conf.task_always_eager = True

    async def say(word: str = "said") -> str:
        return word

    pending = app.task(say, name="early.pending")
    made = app.task(say, name="early.made", shared=False, autoretry_for=(ValueError,))
    shared_task(say, name="early.shared")  # its name is asked of the current app, which may be another
    assert made.name
    Coordinator(app)
    wrapped = app.task(say, name="early.wrapped", base=Wrapping)
    run = app.task(say, name="early.run", base=Running)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        app.register_task(Old())
        app.finalize()
        assert [both(task) for task in (pending, made, app.tasks["early.shared"])] == ["said"] * 3
        assert [both(task) for task in (app.tasks["early.old"], wrapped, run)] == ["old", "in call said", "said"]


def test_a_job_whose_plain_function_returns_a_coroutine_fails_and_says_so(app: Any) -> None:
    async def body() -> None: ...

    @app.task(shared=False)
    def odd() -> Any:
        return body()

    with pytest.raises(NoRetry, match=r"odd returned a coroutine, which nothing runs: declare it as `async def`"):
        app.coordinator.submit("k", odd.s()).get()


def test_called_like_a_function_it_gives_its_coroutine(app: Any, way: str) -> None:
    def of(task: Any, *args: Any) -> Any:
        return task.delay(*args).get(disable_sync_subtasks=False)

    @app.task(shared=False)
    async def inner(number: int) -> list[Any]:
        job = current_job()
        return [number, job and job.key]

    @app.task(shared=False, bind=True)
    async def outer(self: Any, number: int) -> Any:
        return await self.run(number - 1) if number else [await inner(number), await inner.run(number)]

    @app.task(shared=False)
    def plain() -> Any:
        return asyncio.run(inner.run(5))

    assert outer.delay(1).get() == [[0, None], [0, None]]
    assert app.coordinator.submit("k", outer.s(1)).get() == [[0, "k"], [0, "k"]]
    assert asyncio.run(inner(4)) == [4, None]
    assert plain.delay().get() == [5, None]


def test_it_runs_where_a_loop_runs_already_and_within_another_body(app: Any, way: str) -> None:
    @app.task(shared=False)
    async def number(given: int) -> int:
        await asyncio.sleep(0)
        return given

    @app.task(shared=False)
    async def twice(given: int) -> int:
        first = app.coordinator.submit("a", number.s(given)).get()
        return int(first) + int(number.delay(given).get(disable_sync_subtasks=False))

    async def test() -> int:
        return int(app.coordinator.submit("k", twice.s(4)).get())

    assert both(twice, 3) == 6
    assert asyncio.run(test()) == 8


def test_the_loop_stays_and_what_a_body_sets_in_its_context_does_not(app: Any, way: str) -> None:
    @app.task(shared=False)
    async def look() -> list[Any]:
        seen, mark = var.get(), getattr(asyncio.get_running_loop(), "mark", 0)
        var.set("dirty")
        asyncio.get_running_loop().mark = mark + 1  # type: ignore[attr-defined]
        return [seen, mark]

    assert [look.delay().get() for _ in range(3)] == [["clean", 0], ["clean", 1], ["clean", 2]]


def test_each_thread_has_a_loop_which_is_closed_once_the_thread_has_ended(app: Any, way: str) -> None:
    both_in, loops = threading.Barrier(2, timeout=10), []

    @app.task(shared=False)
    async def meet() -> None:
        loops.append(asyncio.get_running_loop())
        await asyncio.to_thread(both_in.wait)

    threads = [threading.Thread(target=meet.delay) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(loops)) == 2

    def closed() -> bool:
        gc.collect()
        return all(loop.is_closed() for loop in loops)

    wait_until(closed)


def test_what_a_body_leaves_is_cancelled_closed_and_told(app: Any, way: str, caplog: pytest.LogCaptureFixture) -> None:
    did, held = [], []

    async def numbers(name: str) -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            did.append(f"closed {name}")

    async def lingers() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            did.append("cancelled")

    @app.task(shared=False)
    async def leaves() -> str:
        held.append(asyncio.create_task(lingers()))
        held.append(numbers("held"))
        await anext(held[-1])
        async for _ in numbers("dropped"):
            return "returned"
        raise AssertionError

    assert leaves.delay().get() == "returned"
    assert sorted(did) == ["cancelled", "closed dropped", "closed held"]
    [told] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "leaves[" in told
    assert told.endswith("had started still ran; they are cancelled: "
                         "test_what_a_body_leaves_is_cancelled_closed_and_told.<locals>.lingers")  # fmt: skip


def test_what_swallows_its_cancellation_is_named_and_holds_the_job_up_for_seconds_only(
    app: Any, way: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, held = threading.Event(), []
    monkeypatch.setattr("coordinator.core.async_tasks.body._PATIENCE", 0.05)

    async def deaf() -> None:
        while not goes_on.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    @app.task(shared=False)
    async def leaves() -> str:
        held.append(asyncio.create_task(deaf()))
        await asyncio.sleep(0)
        return "returned"

    @app.task(shared=False)
    async def fine() -> str:
        await asyncio.sleep(0.02 if goes_on.is_set() else 0)
        return "fine"

    assert leaves.delay().get() == "returned"
    assert "deaf" in next(record.getMessage() for record in caplog.records if record.levelno == logging.ERROR)
    caplog.clear()
    assert fine.delay().get() == "fine"
    assert caplog.records == []
    goes_on.set()
    fine.delay().get()


@pytest.fixture
def soft() -> Iterator[Callable[[], None]]:
    """Sends the signal of a soft time limit, as Celery handles it."""

    def raises(*_: object) -> None:
        raise SoftTimeLimitExceeded(1)

    before = signal.signal(signal.SIGUSR1, raises)
    yield lambda: os.kill(os.getpid(), signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def test_a_soft_time_limit_is_raised_where_the_body_awaits(app: Any, way: str, soft: Callable[[], None]) -> None:
    async def swallows() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    @app.task(shared=False)
    async def waits(how: str) -> list[Any]:
        try:
            await asyncio.to_thread(soft)
            await {"sleep": lambda: asyncio.sleep(60), "child": lambda: asyncio.create_task(swallows())}[how]()
        except SoftTimeLimitExceeded:
            async with asyncio.timeout(60):
                await asyncio.sleep(0)
            task = asyncio.current_task()
            return ["put away", task and task.cancelling()]
        return ["not interrupted"]

    @app.task(shared=False)
    async def lets_it_pass() -> None:
        await asyncio.to_thread(soft)
        await asyncio.sleep(60)

    @app.task(shared=False)
    async def fine() -> str:
        return "fine"

    for how in ("sleep", "child"):
        assert waits.delay(how).get() == ["put away", 0]
    with pytest.raises(SoftTimeLimitExceeded):
        lets_it_pass.delay().get()
    assert fine.delay().get() == "fine"


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_signal_that_ends_the_process_ends_the_body_first(
    app: Any, way: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    did = []

    def raises(*_: object) -> None:
        raise error

    @app.task(shared=False)
    async def waits(ends: bool) -> None:
        try:
            await asyncio.to_thread(os.kill, os.getpid(), signal.SIGUSR2)
            await asyncio.sleep(60)
        finally:
            did.append("put away")
            if not ends:
                await asyncio.sleep(60)

    monkeypatch.setattr("coordinator.core.async_tasks.loop._PATIENCE", 0.05)
    before = signal.signal(signal.SIGUSR2, raises)
    try:
        for ends in (True, False):
            with pytest.raises(error):
                waits.delay(ends)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert did == ["put away", "put away"]


def test_sys_exit_in_a_body_or_its_asyncio_task_is_its_error_and_the_loop_goes_on(app: Any, way: str) -> None:
    async def leave() -> None:
        sys.exit(3)

    @app.task(shared=False)
    async def exits(child: bool) -> None:
        await (asyncio.create_task(leave()) if child else leave())

    @app.task(shared=False)
    async def fine() -> str:
        await asyncio.sleep(0)
        return "fine"

    for child in (True, False):
        with pytest.raises(SystemExit):
            exits.delay(child)
        assert fine.delay().get() == "fine"


def test_a_process_that_a_body_forks_does_not_return_from_it(app: Any, way: str) -> None:
    @app.task(shared=False)
    async def forks() -> int:
        child = os.fork()
        if not child:
            signal.alarm(20)  # it would end by a signal
            return 0
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of fork in a process with threads
        assert forks.delay().get() == 0


def test_sync_code_of_asgiref_runs_in_the_thread_of_the_task_and_may_await(app: Any) -> None:
    @app.task(shared=False)
    async def where() -> list[Any]:
        async def deep() -> int:
            return await sync_to_async(threading.get_ident)()

        @sync_to_async
        def shallow() -> list[Any]:
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()
            return [threading.get_ident(), async_to_sync(deep)()]

        return [*await shallow(), *await asyncio.gather(*(sync_to_async(threading.get_ident)() for _ in range(3)))]

    assert set(both(where)) == {threading.get_ident()}

    async def test() -> set[int]:
        """As in an async test of Django, whose thread serves the sync code, and then waits for the body."""
        return set(await sync_to_async(both)(where))

    assert async_to_sync(test)() == {threading.get_ident()}


def test_sync_code_of_a_body_may_run_another_async_task(app: Any) -> None:
    def of(task: Any, *args: Any) -> Any:
        return task.delay(*args).get(disable_sync_subtasks=False)

    @app.task(shared=False)
    async def inner(number: int) -> list[Any]:
        await asyncio.sleep(0)
        deeper = await sync_to_async(lambda: of(inner, number - 1))() if number else []
        return [number, *deeper]

    @app.task(shared=False)
    async def outer() -> Any:
        return [*await sync_to_async(lambda: of(inner, 2))(), "outer"]

    assert outer.delay().get() == [2, 1, 0, "outer"]


def test_what_is_cancelled_at_the_end_of_a_body_may_still_use_the_thread_of_the_task(app: Any) -> None:
    put_away: list[int] = []
    held: list[Any] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            put_away.append(await sync_to_async(threading.get_ident)())

    async def lingers() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            put_away.append(await sync_to_async(threading.get_ident)())

    @app.task(shared=False)
    async def leaves() -> None:
        held.extend([asyncio.create_task(lingers()), numbers()])
        await anext(held[1])

    leaves.delay().get()
    assert put_away == [threading.get_ident()] * 2
