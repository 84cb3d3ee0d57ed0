"""The same tasks in three kinds: of plain Celery, keyed, and those that are submitted as jobs.

`plain` is an app without a coordinator; `app` has one, with the other two kinds.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import redis
from celery import Celery, chain, chord, group, signals
from celery.app.task import Task
from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded

from coordinator import Coordinator

_log = redis.Redis.from_url(os.environ["TEST_LOG"], decode_responses=True)
_PREFIX = os.environ["TEST_PREFIX"]


def _app(name: str) -> Celery:
    app = Celery(name, broker=os.environ["TEST_BROKER"], backend=os.environ["TEST_BACKEND"], set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": f"{_PREFIX}.{name}."}
    app.conf.result_backend_transport_options = {"global_keyprefix": f"{_PREFIX}.{name}."}
    app.conf.worker_hijack_root_logger = False
    app.conf.result_extended = True
    app.conf.result_backend_thread_safe = True  # one for all threads of a test, to close
    app.conf.worker_prefetch_multiplier = 100  # calls with an eta hold places
    return app


def note(run: str, text: object) -> None:
    _log.rpush(f"{_PREFIX}.log.{run}", str(text))


def notes(run: str) -> list[str]:
    return _log.lrange(f"{_PREFIX}.log.{run}", 0, -1)  # type: ignore[return-value]


def _open(run: str) -> None:
    """Wait until the case opens the gate."""
    note(run, "waits")
    while not _log.exists(f"{_PREFIX}.open.{run}"):
        time.sleep(0.01)


def open_gate(run: str) -> None:
    _log.set(f"{_PREFIX}.open.{run}", 1)


class Tenant(Task):
    """A base class that adds a header to each call, as SDKs do."""

    abstract = True

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        options["headers"] = {**(options.get("headers") or {}), "tenant": "seven"}
        return super().apply_async(args, kwargs, **options)


class Handlers(Task):
    """A base class with handlers."""

    abstract = True

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        note(kwargs["run"], f"on_success {retval}")

    def on_failure(self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        note(kwargs["run"], f"on_failure {exc}")

    def on_retry(self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        note(kwargs["run"], f"on_retry {exc}")

    def after_return(self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        note(kwargs["run"], f"after_return {status}")


@signals.before_task_publish.connect(weak=False)
def _trace(headers: Any = None, body: Any = None, **_: Any) -> None:
    if isinstance(body, tuple) and "published" in str(body[1].get("run")):
        headers["trace"] = "forty-two"
        if "published here" in body[1]["run"] and "worker" not in sys.argv:
            headers["place"] = "the caller's"


def _noted(name: str) -> Callable[..., None]:
    def handler(sender: Any = None, kwargs: Any = None, request: Any = None, **_: Any) -> None:
        of_call = kwargs if kwargs is not None else getattr(request, "kwargs", None) or {}
        if "signals" in str(of_call.get("run")):
            note(of_call["run"], f"signal {name}")

    return handler


for _name in ("task_prerun", "task_postrun", "task_success", "task_failure", "task_retry", "task_revoked"):
    getattr(signals, _name).connect(_noted(_name), weak=False)


if "worker" in sys.argv:  # a type that only workers have
    sys.modules["only_there"] = ModuleType("only_there")
    vars(sys.modules["only_there"])["Only"] = type("Only", (Exception,), {"__module__": "only_there"})


class Odd(Exception):
    """Takes two arguments, as many an error of a library does."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first, second)


class Body:
    """What a call may do; the first argument of each task names it."""

    def __init__(self, task: Task, run: str) -> None:
        self.task, self.run = task, run

    def s(self, what: str, *args: Any, **kwargs: Any) -> Any:
        return self.task.s(*args, what=what, run=self.run, **kwargs)

    def add(self, *numbers: Any) -> Any:
        note(self.run, f"add {tuple(sorted(one, key=str) if isinstance(one, list) else one for one in numbers)}")
        return sum(sum(one) if isinstance(one, list) else one for one in numbers)

    def echo(self, *args: Any, lane: str = "") -> Any:
        note(self.run, f"echo {args}")
        return args[0] if args else None

    def error(self, *args: Any) -> None:
        note(self.run, f"errback {type(args[0]).__name__}")

    def fail(self, *args: Any) -> None:
        note(self.run, "fail")
        raise ValueError("no")

    def unknown(self) -> None:
        raise sys.modules["only_there"].Only("there")  # type: ignore[attr-defined]

    def odd(self) -> None:
        raise Odd("one", "two")

    def exits(self) -> None:
        raise SystemExit(3)

    def ignore(self, *_: Any) -> None:
        note(self.run, "ignore")
        raise Ignore

    def reject(self) -> None:
        note(self.run, "reject")
        raise Reject("no", requeue=False)

    def requeue(self, times: int = 3) -> str:
        note(self.run, "requeue")
        if len(notes(self.run)) < times:
            raise Reject("again", requeue=True)
        return "done"

    def sleep(self, seconds: float) -> str:
        note(self.run, "sleeps")
        try:
            time.sleep(seconds)
        except SoftTimeLimitExceeded:
            note(self.run, "soft limit")
            return "soft"
        return "slept"

    def gate(self) -> str:
        _open(self.run)
        return "open"

    def progress(self) -> str:
        self.task.update_state(state="PROGRESS", meta={"done": 1})
        _open(self.run)
        return "over"

    def killed(self) -> str:
        note(self.run, "killed")
        if len(notes(self.run)) < 2:
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGKILL)
        return "alive"

    def retry(self, most: int = 1, **options: Any) -> list[int]:
        note(self.run, f"try {self.task.request.retries}")
        if self.task.request.retries < most:
            raise self.task.retry(countdown=0.1, **options)
        return [self.task.request.retries]

    def retry_waits(self) -> str:
        """Its state can be seen meanwhile."""
        note(self.run, "try")
        if self.task.request.retries < 1:
            raise self.task.retry(countdown=2, exc=ValueError("later"))
        return "done"

    def retry_exc(self) -> None:
        raise self.task.retry(countdown=0, exc=ValueError("cause"), max_retries=1)

    def retry_most(self) -> None:
        note(self.run, "try")
        raise self.task.retry(countdown=0, max_retries=1)

    def retry_args(self, number: int = 0) -> int:
        note(self.run, f"number {number}")
        if number < 2:
            raise self.task.retry(args=(number + 1,), countdown=0)
        return number

    def retry_kwargs(self, word: str = "") -> str:
        if not word:
            raise self.task.retry(kwargs={"what": "retry_kwargs", "run": self.run, "word": "new"}, countdown=0)
        return word

    def retry_queue(self) -> Any:
        if self.task.request.retries < 1:
            raise self.task.retry(queue="other", countdown=0)
        return self.task.request.delivery_info["routing_key"]

    def retry_limit(self) -> str:
        if self.task.request.retries < 1:
            raise self.task.retry(time_limit=0.5, countdown=0)
        time.sleep(3)
        return "no limit"

    def retry_quiet(self) -> str:
        note(self.run, f"try {self.task.request.retries}")
        if self.task.request.retries < 1:
            self.task.retry(countdown=0.1, throw=False)
        return "went on"

    def seen(self, *names: str) -> Any:
        """What its request says."""
        request, known = self.task.request, {}
        for name in ("id", "root_id", "parent_id"):
            known.setdefault(getattr(request, name), name)
        found = {}
        for name in names:
            value = getattr(request, name, "missing")
            found[name] = known.get(value, value) if isinstance(value, str) else value
        return found

    def ignored_seen(self) -> None:
        note(self.run, self.task.request.ignore_result)

    def seen_links(self) -> int:
        return len(self.task.request.callbacks or ())

    def seen_behind(self, _: Any, *names: str) -> Any:
        return self.seen(*names)

    def replace(self, kind: str, *before: Any) -> Any:
        add = self.s
        made: dict[str, Callable[[], Any]] = {
            "task": lambda: add("add", 1, 2),
            "chain": lambda: chain(add("add", 1, 2), add("add", 10)),
            "group": lambda: group(add("add", 1, 2), add("add", 3, 4)),
            "chord": lambda: chord([add("add", 1, 2), add("add", 3, 4)], add("add")),
            "fails": lambda: add("fail"),
            "ignores": lambda: add("ignore"),
        }
        return self.task.replace(made[kind]())

    def behind(self, _: Any, kind: str) -> Any:
        return self.replace(kind)

    def grows(self, number: int) -> int:
        note(self.run, f"grows {number}")
        self.task.add_to_chord(self.s("add", 100))
        return number

    def calls(self) -> str:
        """Its call is its child."""
        self.s("add", 1, 2).apply_async()
        return "called"

    def handles(self) -> Any:
        """Returns the handle of another call."""
        return self.s("add", 1, 2).apply_async()

    def dates(self, value: Any) -> str:
        return type(value).__name__

    def first(self, lane: str = "") -> None:
        """Tries again until the call behind it has run, a few times at most."""
        note(self.run, f"first {self.task.request.retries}")
        if self.task.request.retries < 6 and "echo ()" not in notes(self.run):
            raise self.task.retry(countdown=0.5, max_retries=9)

    def own_lane(self, lane: str = "") -> Any:
        """In a keyed task's own lane, its parts would wait for it."""
        return self.task.replace(group(self.s("echo", lane=lane), self.s("echo", lane=lane)))


class Tasks:
    """One kind of them."""

    def __init__(self, app: Celery, kind: str, coordinate: Any = None) -> None:
        self.app, self.kind = app, kind
        own = {"coordinate": coordinate} if coordinate else {}

        def make(name: str, **options: Any) -> Task:
            @app.task(bind=True, name=f"{kind}.{name}", shared=False, **own, **options)
            def task(self: Task, *args: Any, what: str = "add", run: str = "", **named: Any) -> Any:
                return getattr(Body(self, run), what)(*args, **named)

            return task

        self.usual = make("usual")
        self.tracked = make("tracked", track_started=True)
        self.tenant = make("tenant", base=Tenant)
        self.handlers = make("handlers", base=Handlers)
        self.silent = make("silent", ignore_result=True)
        self.auto = make("auto", autoretry_for=(ValueError,), retry_kwargs={"max_retries": 2, "countdown": 0})
        self.limited = make("limited", time_limit=2)
        self.loose = make("loose", typing=False)
        self.late = make("late", acks_late=True)
        self.slow = make("slow", rate_limit="100/s")

        @app.task(name=f"{kind}.two", shared=False, **own)
        def two(x: int, y: int = 1, what: str = "", run: str = "") -> int:
            return x + y

        @app.task(name=f"{kind}.error", shared=False, **own)
        def error(request: Any, exc: Any, traceback: Any, what: str = "", run: str = "") -> None:
            note(run, f"errback {type(exc).__name__}")

        self.two, self.error = two, error


def _lane(*_: Any, **arguments: Any) -> str:
    """One of its own for each call that names none."""
    return str(arguments.get("lane") or os.urandom(8).hex())


plain = _app("plain")
app = _app("meaning")
coordinator = Coordinator(app)
KINDS = {
    "plain": Tasks(plain, "plain", {"key": _lane}),
    "keyed": Tasks(app, "keyed", {"key": _lane}),
    "submitted": Tasks(app, "submitted"),
}
