"""One run of the body of an async task, as the event loop sees it: its steps, its interruption, and what it leaves."""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from weakref import WeakSet

from celery.app.task import Context, Task

from coordinator.core.runner.as_job import in_one_process

logger = logging.getLogger(__name__)

_PATIENCE = 5.0  # seconds in which the asyncio tasks that a body has left must end
_OURS = "coordinator-"  # so begin the names of asyncio tasks that `coordinator.aio` keeps in a loop for later bodies


class Body:
    """Runs `steps`, the coroutine of the body of `task`, in `loop`. `is_over`: the body has ended, and so have the
    asyncio tasks that it started. Its `value` or `error` is there then.
    """

    def __init__(
        self, task: Task, request: Context, steps: Coroutine[object, object, object], loop: AbstractEventLoop
    ) -> None:
        self.task, self.request, self.loop = task, request, loop
        self.value: object = None
        self.error: BaseException | None = None
        self.has_returned = self.is_over = False
        self._has_begun = False
        self.runs: asyncio.Task[None] | None = None
        self._steps = steps
        self._reason: BaseException | None = None  # to be raised in the body at its next step
        self._opened: WeakSet[object] | None = None  # async generators that may be unfinished; None: it had none
        self._closing: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """Start the body, in a copy of the context: what it sets there is gone after it."""
        self.runs = self.loop.create_task(self.run())

    def interrupt(self, reason: BaseException) -> None:
        """Raise `reason` in the body, where it awaits. Has no effect on a body that has returned."""
        if self.runs is None:
            self._steps.close()
            self.error = reason
            self.over()
        elif not self.has_returned:
            self._reason = reason
            if self._has_begun:  # asyncio never begins a task that was cancelled before its first step
                self.runs.cancel()

    def over(self) -> None:
        self.is_over = True

    async def run(self) -> None:
        self._has_begun = True
        sys.set_asyncgen_hooks(self._opens, self._drops)
        try:
            try:
                with in_one_process(self.request.id):
                    self.value = await self._steered()
            except BaseException as error:
                self.error = error
            self.has_returned = True
            await self._tidy()
        finally:
            sys.set_asyncgen_hooks(None, None)
            self.over()

    @coroutine
    def _steered(self) -> Generator[object, object, object]:
        """The steps of the body. After an interruption, the next one raises the reason; asyncio could only cancel."""
        step: Callable[..., object] = self._steps.send
        value: object = None
        while True:
            if self._reason is not None and self.runs is not None:
                self.runs.uncancel()
                step, value, self._reason = self._steps.throw, self._reason, None
            try:
                awaited = step(value)
            except StopIteration as end:
                return end.value
            try:
                step, value = self._steps.send, (yield awaited)
            except BaseException as error:
                step, value = self._steps.throw, error

    def _opens(self, generator: object) -> None:
        self._opened = WeakSet() if self._opened is None else self._opened
        self._opened.add(generator)

    def _drops(self, generator: object) -> None:
        """Close an async generator that nothing refers to any more. Python may call this in any thread."""
        self.loop.call_soon_threadsafe(self._close, generator)

    def _close(self, generator: object) -> None:
        self._closing.add(self.loop.create_task(generator.aclose()))  # type: ignore[attr-defined]

    async def _tidy(self) -> None:
        """Cancel the asyncio tasks that the body has left running, and close its async generators. A task that swallows
        its cancellation and goes on is left behind.
        """
        if self._opened is not None:
            await asyncio.sleep(0)  # one that was just dropped is closed in this turn
        while left := [one for one in asyncio.all_tasks() if self._is_left(one)]:
            names = ", ".join(sorted(getattr(one.get_coro(), "__qualname__", "") or one.get_name() for one in left))
            logger.warning(
                "task %s[%s] ended while asyncio tasks that it had started still ran; they are cancelled: %s",
                self.task.name, self.request.id, names,
            )  # fmt: skip
            for one in left:
                one.cancel()
            _, deaf = await asyncio.wait(left, timeout=_PATIENCE)
            for one in deaf:
                logger.error("%s goes on in the loop after %s s, though it was cancelled", one.get_coro(), _PATIENCE)
                one.set_name(f"{_OURS}left-behind")
        for generator in list(self._opened or ()):
            self._close(generator)
        if self._closing:
            await asyncio.wait(self._closing)

    def _is_left(self, one: asyncio.Task[object]) -> bool:
        return one is not self.runs and one not in self._closing and not one.get_name().startswith(_OURS)
