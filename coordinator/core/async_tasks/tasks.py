"""Has the tasks of an app that are `async def` run in an event loop, as jobs and as ordinary tasks.

Where such a task is declared, Celery gets a plain function that runs the body to its end. So all that Celery puts
around a function works as usual: the tracer, `bind`, `pydantic`, `autoretry_for`, a class's handlers, SDKs.

A task that is called like a function gives its coroutine, as without the library: `await ship(42)`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import iscoroutine, iscoroutinefunction, signature

from celery import Celery
from celery._state import _task_stack
from celery.app.task import Context, Task

from coordinator.errors import NoRetry

Body = Coroutine[object, object, object]
_BEGUN = "coordinator_begun"  # attribute of a request whose body has begun


class AsyncTasks:
    """Runs the async tasks of one app; `install` wraps the app's methods that make tasks."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._kept = threading.local()  # the BodyLoops of each thread
        self._names: set[str] = set()
        self._made: dict[Callable[..., Body], Callable[..., object]] = {}

    def install(self) -> None:
        """Wrap `_task_from_fun` and `register_task` of the app. Tasks that it has made before, or makes of what was
        declared before, follow now and when the app is finalized.
        """
        app = self._app
        usual, register = app._task_from_fun, app.register_task

        def task_from_fun(
            fun: Callable[..., object], name: str | None = None, base: type[Task] | None = None, **options: object
        ) -> Task:
            if not iscoroutinefunction(fun):
                return usual(fun, name, base, **options)
            if (call := (base or app.Task).__call__) is not Task.__call__:
                return usual(fun, name, base, __call__=self._calls(call), **options)
            is_new = (name or app.gen_task_name(fun.__name__, fun.__module__)) not in app._tasks
            task = usual(self._plain(fun) if is_new else fun, name, base, **options)
            task._decorated_fun = fun  # by which Celery tells one name for two functions
            self._names.add(task.name)
            return task

        def register_task(task: Task | type[Task], **options: object) -> Task:
            registered = register(task, **options)
            self._adopt(registered)
            return registered

        def adopt_all(**_: object) -> None:
            for task in app._tasks.values():
                self._adopt(task)

        app._task_from_fun, app.register_task = task_from_fun, register_task
        app.on_after_finalize.connect(adopt_all, weak=False)
        adopt_all()

    def _adopt(self, task: Task) -> None:
        """Change a task that Celery has made of an async body, unless a base class has a `__call__` of its own."""
        name = "_orig_run" if hasattr(task, "_orig_run") else "run"  # what Celery's `autoretry_for` calls
        body = getattr(task, name)
        if iscoroutinefunction(body) and type(task).__call__ is Task.__call__:
            setattr(task, name, self._plain(body))
            self._names.add(task.name)

    def _plain(self, body: Callable[..., Body]) -> Callable[..., object]:
        """Make a plain function that runs an async body in the loop where a tracer calls it for the task; for any other
        caller it returns the coroutine.
        """
        if body in self._made:
            return self._made[body]

        @wraps(body)
        def run(*args: object, **kwargs: object) -> object:
            coroutine, task = body(*args, **kwargs), _task_stack.top
            if task is None or task.app is not self._app or task.name not in self._names:
                return coroutine
            return self._run(task, request, coroutine) if (request := _traced(task)) else coroutine

        vars(run)["__signature__"] = signature(body)  # which Celery reads to check the arguments of calls
        return self._made.setdefault(body, run)

    def _calls(self, usual: Callable[..., object]) -> Callable[..., object]:
        """Make a `__call__` that also runs the coroutine which the own `__call__` of a base class returns, if it does
        not run the body itself.
        """

        @wraps(usual)
        def __call__(task: Task, *args: object, **kwargs: object) -> object:
            value = usual(task, *args, **kwargs)
            if not iscoroutine(value) or _task_stack.top is not task:
                return value
            return self._run(task, request, value) if (request := _traced(task)) else value

        return __call__

    def _run(self, task: Task, request: Context, body: Body) -> object:
        from coordinator.core.async_tasks.loop import kept  # only processes that run async bodies load asyncio

        setattr(request, _BEGUN, True)
        try:
            loop = kept(self._kept)
        except NoRetry:
            body.close()
            raise
        return loop.run(task, request, body)


def _traced(task: Task) -> Context | None:
    """The request of the running `task` if a tracer is calling it; None within its body, and where the task is called
    like a function.
    """
    request: Context = task.request  # asked once: each time takes Celery a microsecond
    return None if request.called_directly or hasattr(request, _BEGUN) else request
