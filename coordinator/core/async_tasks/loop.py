"""Keeps an event loop for each thread that runs async tasks. So clients of other services keep their connections from
body to body.

The thread itself runs the loop while a body lasts. Where it cannot, the loop has a thread of its own, for which the
other waits:

    thread of the pool ── body ───────────────────────► thread of its loop
        waits, and hears signals ── soft time limit ──►   the body, and the asyncio tasks that it starts
                                ◄── sync code ─────────
                                ◄── value or error ────

That is so where a loop runs in the thread already, as in async tests, and where asgiref is loaded, as with Django: sync
code, such as that of the ORM, then runs in the thread that waits. Its connections are those that Celery closes around
each task, and in a test they are in the test's transaction.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from types import FrameType
from typing import ParamSpec, TypeVar
from weakref import finalize

from celery._state import _set_current_app, _task_stack
from celery.app.task import Context, Task
from celery.exceptions import SoftTimeLimitExceeded
from kombu.utils.compat import detect_environment

from coordinator.core.async_tasks.body import Body
from coordinator.errors import NoRetry

P = ParamSpec("P")
T = TypeVar("T")

_PATIENCE = 5.0  # seconds in which a body must end after a SystemExit, which means that its process ends


class BodyLoop:
    """The event loop for the bodies that one thread runs, one after the other. `is_busy`: while one of them runs."""

    def __init__(self) -> None:
        self.process, self.is_busy = os.getpid(), False
        self._loop, self._has_thread = asyncio.new_event_loop(), False
        self._at_end = finalize(self, _close, self._loop, self.process)
        self._at_end.atexit = False

    def run(self, task: Task, request: Context, steps: Coroutine[object, object, object]) -> object:
        """Run `steps`, the coroutine of the body of `task` for `request`, and return its value, or raise its error."""
        body = (_Apart if self._has_thread else _Here)(task, request, steps, self._loop)
        try:
            self.is_busy = True
            body.end()
            if body.error is not None:
                raise body.error
            return body.value
        finally:
            self.is_busy = False
            body.error = None  # the error and this frame would keep each other alive

    def start_thread(self) -> None:
        """Have a thread run the loop from now on, until the thread that owns it ends."""
        if self._has_thread:
            return
        self._has_thread, is_over = True, threading.Event()
        threading.Thread(target=_keep, args=(self._loop, is_over), name="coordinator-loop", daemon=True).start()
        self._at_end.detach()
        finalize(self, _stop, self._loop, self.process, is_over).atexit = False


def kept(local: threading.local) -> BodyLoop:
    """The loop of the calling thread, which `local` keeps. A body has another one where a loop runs in the thread, or
    where the body before it waits for sync code that this thread runs. A forked process makes its own. Raises NoRetry
    in a pool of greenlets: they share a thread, in which one loop can run.
    """
    if (pool := detect_environment()) != "default":
        raise NoRetry(f"async tasks do not run in a pool of {pool}: start a worker with -P prefork, threads or solo")
    is_within = asyncio._get_running_loop() is not None
    loops: list[BodyLoop] = vars(local).setdefault("beside" if is_within else "own", [])
    loop = next((one for one in loops if one.process == os.getpid() and not one.is_busy), None)
    if loop is None:
        loops.append(loop := BodyLoop())
    if is_within or "asgiref.sync" in sys.modules:
        loop.start_thread()
    return loop


def _close(loop: AbstractEventLoop, process: int) -> None:
    if os.getpid() == process:  # a fork has the same epoll: it would take things out of that of its parent
        loop.close()


def _stop(loop: AbstractEventLoop, process: int, is_over: threading.Event) -> None:
    if os.getpid() == process:
        is_over.set()
        loop.call_soon_threadsafe(loop.stop)


def _keep(loop: AbstractEventLoop, is_over: threading.Event) -> None:
    while not is_over.is_set():
        with suppress(SystemExit, KeyboardInterrupt):  # of an asyncio task; the body that awaits it gets it, too
            loop.run_forever()
    loop.close()


class _Here(Body):
    """A body whose loop runs in the thread that runs the task. `_before`: the handler of SIGUSR1."""

    _before: Callable[[int, FrameType | None], object] | int | None = None

    def end(self) -> None:
        """Run the body to its end. What a signal handler raises meanwhile is raised in the body, where it awaits. A
        body that goes on for some seconds after a SystemExit is left behind.
        """
        self.begin()
        in_main = threading.current_thread() is threading.main_thread()
        if in_main:
            self._before = signal.signal(signal.SIGUSR1, self._on_signal)
        try:
            self._drive()
        finally:
            if in_main:
                signal.signal(signal.SIGUSR1, self._before or signal.SIG_DFL)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        """Raise the soft time limit in the body: within the loop it would be lost."""
        if callable(self._before):
            try:
                self._before(signum, frame)
            except SoftTimeLimitExceeded as error:
                self.loop.call_soon_threadsafe(self.interrupt, error)

    def _drive(self) -> None:
        stop: BaseException | None = None
        limit: asyncio.TimerHandle | None = None
        while not self.is_over and self.runs:
            try:
                self.loop.run_until_complete(self.runs)
            except BaseException as error:
                if stop is not None:
                    raise stop from None
                self.interrupt(error)
                if not isinstance(error, Exception):
                    stop, limit = error, self.loop.call_later(_PATIENCE, self.loop.stop)
        if limit is not None:
            limit.cancel()


class _Apart(Body):
    """A body whose loop has a thread of its own, and the executor by which asgiref runs sync code in the thread that
    waits for it.
    """

    def __init__(
        self, task: Task, request: Context, steps: Coroutine[object, object, object], loop: AbstractEventLoop
    ) -> None:
        super().__init__(task, request, steps, loop)
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._work: deque[tuple[Future[object], Callable[[], object]]] = deque()

    def end(self) -> None:
        """Wait until the body has ended, as `_Here.end` does."""
        # asgiref keeps in a thread the loop for which that last ran sync code, and would later use it.
        known = getattr(sys.modules.get("asgiref.sync"), "SyncToAsync", None)
        before = getattr(known and known.threadlocal, "main_event_loop", None)
        try:
            self._wait()
        finally:
            if known:
                known.threadlocal.main_event_loop = before

    def _wait(self) -> None:
        stop: BaseException | None = None
        until, is_sent = None, False
        while not self.is_over:
            try:
                if not is_sent:
                    is_sent = True
                    self.loop.call_soon_threadsafe(self.begin)  # in a copy of this context
                self._serve(until)
            except BaseException as error:
                if stop is not None:
                    raise stop from None
                self.loop.call_soon_threadsafe(self.interrupt, error)
                if not isinstance(error, Exception):
                    stop, until = error, time.monotonic() + _PATIENCE

    def over(self) -> None:
        super().over()
        self._wake.put(None)

    def _serve(self, until: float | None) -> None:
        """Wait until the body ends or has sync code for this thread, which is then run. Raises Empty at the end of
        `until`.
        """
        self._wake.get(timeout=until and max(0.0, until - time.monotonic()))
        while self._work:
            future, call = self._work[0]  # taken out when it is done: a signal may interrupt these lines
            if not future.done() and (future.running() or future.set_running_or_notify_cancel()):
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            self._work.popleft()

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call in the thread that waits for the body. asgiref calls this."""
        if self.is_over:
            raise RuntimeError(f"the body of {self.task.name} is over, and its thread runs no more sync code for it")
        future: Future[T] = Future()
        self._work.append((future, lambda: function(*args, **kwargs)))  # type: ignore[arg-type]
        self._wake.put(None)
        return future

    async def run(self) -> None:
        """As in the thread that runs the task: Celery keeps the current app, task and request for each thread."""
        _set_current_app(self.task.app)
        _task_stack.push(self.task)
        self.task.request_stack.push(self.request)
        if asgiref := sys.modules.get("asgiref.sync"):
            asgiref.AsyncToSync.executors.current = self
        try:
            await super().run()
        finally:
            self.task.request_stack.pop()
            _task_stack.pop()
