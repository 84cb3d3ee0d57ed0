"""Runs jobs in the calling thread, on the real steps of a real Redis: for users' suites.

    call ─► step in Redis ─► wake-ups ─► a runner in this thread ─► sub-results, results, links ─► until nothing can run

A call of the coordinator returns once nothing more can run. So a job whose key has a job at work, or whose lock is
held, runs once that is over; a job for another key runs within the call. Differences from a fleet:

- Time stands still until the test waits, or calls `advance`: then delays end, and the instants that people name (`eta`,
  `expires`, a `not_before` with a date) come nearer. Retries follow each other at once unless a job names a delay.
- There is one node, with room for all jobs, and with every queue and label that a job asks for. No process is stopped:
  a job that is cancelled at work ends as cancelled after its attempt.
- Nobody else works meanwhile. So `wait` and `get` let time pass until the job is over, for `timeout` seconds at most,
  and raise WaitTimeout at once where nothing is due. A lock that would have to wait raises Locked.
- Plain tasks that a job or a link calls run at once, in this thread. A plain call of the test itself is published, as
  ever. Where the app has a result backend, this process keeps the results.
"""

from __future__ import annotations

import math
import tempfile
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any, TypeVar

import pytest
from celery import Celery, _state
from celery.app.task import Context
from celery.backends.cache import CacheBackend
from celery.result import AsyncResult, EagerResult
from celery.states import READY_STATES

from coordinator.author import Author, act_of
from coordinator.client.coordinator import Coordinator
from coordinator.errors import SettingsError, WaitTimeout
from coordinator.fleet.board import Board, nameless
from coordinator.fleet.nodes import Nodes
from coordinator.jobs import validation
from coordinator.jobs.chain import CANVAS
from coordinator.jobs.record import Job, fields_of_many
from coordinator.jobs.request import JobRequest
from coordinator.jobs.submission import Submission
from coordinator.lanes.client import LaneClient
from coordinator.locks.leases import Lease, Renewer, holding
from coordinator.locks.locks import Locks
from coordinator.runner.canvas import Ended, go_on, has_results
from coordinator.runner.eager import InThread
from coordinator.runner.results import JobEnd, coalesced_into, send
from coordinator.runner.runner import Place, Runner, Tools
from coordinator.settings import Settings
from coordinator.store.client import Store
from coordinator.store.connections import Connections
from coordinator.store.times import milliseconds
from coordinator.store.wire import Arg
from coordinator.warden.errands.parked import Parked
from coordinator.warden.errands.results import Results

T = TypeVar("T")

NODE = "inline"
_LONG = 10 * 86400.0  # seconds: no lease ends while a debugger holds the test up
_OF_CELERY = ("link", "link_error", "headers", "stamped_headers")
_DUE = ("due", "expiry", "sorters")  # sets of what the installation's clock brings, each by its instant
_NAMED = ("starts", "latest")  # sets of what the wall clock brings


class InlineJobs:
    """The jobs of one test, in an installation of their own in the Redis at `url`."""

    def __init__(self, coordinator: Coordinator, url: str) -> None:
        app = coordinator.app
        if app is None:
            raise SettingsError("a Coordinator without an app has no tasks that could run here")
        self._app = app
        own = {"url": url, "prefix": f"test-{uuid.uuid4().hex}", "retry_delay": 0.0}
        self.settings = coordinator.settings.model_copy(
            update=own | dict.fromkeys(("lock_ttl", "node_ttl", "slice"), _LONG)
        )
        self._wakes: deque[str] = deque()
        connections = _InlineConnections(self.settings)
        self._quiet = Store(self.settings, connections)
        self.store = _Settling(self.settings, self._quiet, self.settle)
        self.lanes = _InlineLanes(self.store, self._serve, self._pass)
        lanes = LaneClient(self._quiet)
        self._renewer = Renewer(self._quiet)
        self.locks = _InlineLocks(self.store, self.lanes, self._renewer)
        board = Board(Path("/nonexistent"), nameless(Path(tempfile.gettempdir())))  # nobody watches this runner
        self._place = Place(NODE, lanes, NODE, board)
        self._tools: Tools | None = None
        self._parked, self._results = Parked(lanes, app), Results(self._quiet, lanes, app)
        self._turn = threading.RLock()
        self._served: set[str] = set()
        self._backend = _InlineResults(app=app, backend="memory") if has_results(app) else None
        if self._backend:
            self._backend.pass_time, self._backend.now = self._pass, self._quiet.now

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make the coordinator use these jobs until the test ends."""
        parts = vars(self._app.coordinator)
        for name in (
            "_grabber",
            "_parked",
            "_requests",
            "_results",
            "_sorters",
            "entries",
        ):  # made anew with this store
            monkeypatch.setitem(parts, name, None)
            del parts[name]
        for name, part in (
            ("settings", self.settings), ("store", self.store), ("_lanes", self.lanes), ("_locks", self.locks),
            ("_renewer", self._renewer), ("_is_inline", True),
        ):  # fmt: skip
            monkeypatch.setitem(parts, name, part)
        monkeypatch.setitem(self._app.conf.changes, "task_always_eager", False)
        if self._backend:
            monkeypatch.setattr(self._app, "_backend_cache", self._backend)
        self._serve()

    def close(self) -> None:
        self._quiet.close()
        self._place.board.close()

    @property
    def submitted(self) -> list[Job]:
        """The submitted jobs as they are now, in order, without skipped, coalesced and repeated submits."""
        ids = list(dict.fromkeys(self.lanes.asked))
        states = zip(ids, fields_of_many(self._quiet, ids, "state", "alias", "skipped"), strict=True)
        return [self.lanes.job(job_id) for job_id, (state, *others) in states if state and not any(others)]

    def advance(self, seconds: float) -> None:
        """Let so much time pass: run the retries, delays, expiries and sorters that are due by then, in turn."""
        until = self._quiet.now() + milliseconds(seconds)
        while self._pass(until):
            pass
        self._move_clock(until - self._quiet.now())

    def _pass(self, until: float) -> bool:
        """Move the clock to the next due thing and do it; False where nothing is due until then (ms)."""
        sets = [("ZRANGE", self._quiet.key(name), 0, 0, "WITHSCORES") for name in (*_DUE, *_NAMED)]
        firsts, clock = self._quiet.read_many(sets), self._quiet.clock()
        ahead = [clock.now] * len(_DUE) + [clock.wall] * len(_NAMED)
        due = min((int(reply[0][1]) - now for reply, now in zip(firsts, ahead, strict=True) if reply), default=None)
        if due is None or clock.now + due > until:
            return False
        self._move_clock(due)
        self.store.step("sweep", 0, milliseconds(_LONG))
        while self.store.step("sorter_flush", 300):
            pass
        return True

    def _move_clock(self, ms: int) -> None:
        """Move the clock forward. It is the server's clock with an offset (functions/rules/base.lua). Nobody can move
        the wall clock: the instants that people named come nearer instead.
        """
        if ms <= 0:
            return
        for name in map(self._quiet.key, _NAMED):
            for job_id in self._quiet.read("ZRANGE", name, 0, -1):
                self._quiet.read("ZINCRBY", name, -ms, job_id)
        clock = self._quiet.key("clock")
        last, offset, *rest = self._quiet.read("GET", clock).split()
        self._quiet.read("SET", clock, b" ".join((last, b"%d" % (int(offset) + ms), *rest)))

    def settle(self) -> None:
        """Run ready jobs until none is left."""
        with self._turn, _called_at_once(self._app):
            while self._is_woken() or self._look():
                while self._wakes:
                    self._run(self._wakes.popleft())

    def _is_woken(self) -> bool:
        wakes: list[bytes] | None = self._quiet.read("LPOP", self._quiet.key("wakes", NODE, NODE), 1000)
        self._wakes.extend(wake.decode() for wake in wakes or ())
        return bool(self._wakes)

    def _run(self, wake: str) -> None:
        """Run the job of a wake-up, without the locks of the calling code."""
        if self._tools is None:
            self._tools = Tools(self._app, self._place)
            self._tools.tracers = InThread(self._app, NODE)
            self._tools.outbox = _Sender(self._app, self._quiet)  # type: ignore[assignment]
        runner = Runner(self._app, self._place, self._tools)
        context = copy_context()
        context.run(holding.set, ())
        try:
            context.run(runner.run, wake)
        except BaseException:
            self._end(runner.id)
            raise

    def _end(self, runner: str) -> None:
        """End a job that an interrupt or a failed assertion of pytest went through, so that its lane is free."""
        work = self._quiet.key("work", NODE)
        if held := self._quiet.read("HGET", work, runner):
            token, _, job_id = held.decode().split(" ", 2)
            self._quiet.step("job_cancel", job_id, act_of("the test ended", Author(NODE, "system")))
            self._quiet.step("job_lose", job_id, token, "lost", '"the test ended"', 0)
            self._quiet.step("work_drop", NODE, runner, token)

    def _look(self) -> bool:
        """Do what a node does beside its runners; True if a job can go on.

        That is: serve new queues, send unsent results, look at parked jobs, and look for rings of waiting jobs.
        """
        parked, unsent = (self._quiet.key(kind, self._app.main) for kind in ("parked", "unsent"))
        classes, waiting, owed = self._quiet.read_many(
            [("SMEMBERS", self._quiet.key("classes")), ("ZRANGE", parked, 0, -1), ("ZCARD", unsent)]
        )
        self._serve(*(node_class.decode() for node_class in classes))
        while owed and self._results.step():
            pass
        if not waiting:
            return self._is_woken()
        self._quiet.read("ZADD", parked, *(part for job_id in waiting for part in (0, job_id)))
        self._parked.step()
        if waiting == self._quiet.read("ZRANGE", parked, 0, -1):
            self._quiet.step("sweep", 0, milliseconds(_LONG))
        return self._is_woken() or waiting != self._quiet.read("ZRANGE", parked, 0, -1)

    def _serve(self, *classes: str) -> None:
        """Register a node that has all tasks of the app, and every queue and label that a job needs."""
        serves = {f"app {self._app.main}", *(f"queue {queue}" for queue in self._app.amqp.queues)}
        for node_class in classes:
            _, queue, *labels = node_class.split("\n")
            serves |= {f"queue {queue}", *(f"label {label}" for label in labels)}
        if (known := serves | self._app.tasks.keys()) <= self._served:
            return
        self._served |= known
        about: dict[str, str | int | float] = {"app": self._app.main, "capacity": 10**6, "ordinary": 0, "load": 0}
        Nodes(self._quiet).register(
            NODE, NODE, about, self._served - self._app.tasks.keys(), [*self._app.tasks, CANVAS]
        )


class _InlineConnections(Connections):
    def _check_thread(self) -> None:
        """Allow the thread of an asyncio loop, since a test has only one."""


def refuse_real_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test at each call to a Redis other than that of `InlineJobs`, also in code that catches any error."""
    usual = Store.call

    def call(store: Store, ask: Callable[[], T], job_id: str | None = None) -> T:
        if not isinstance(store.connections, _InlineConnections):
            pytest.fail(
                f"the test asks the coordinator's Redis at {store.where}: give it the fixture coordinator_jobs, "
                "and call coordinator_jobs(coordinator) first; tests that need a real one override coordinator_no_redis"
            )
        return usual(store, ask, job_id)

    monkeypatch.setattr(Store, "call", call)


class _Settling(Store):
    """The store of the test and its tasks: after each step, it runs all that can run."""

    def __init__(self, settings: Settings, quiet: Store, settle: Callable[[], None]) -> None:
        super().__init__(settings, quiet.connections)
        self._settle = settle

    def step(self, name: str, *args: Arg, job_id: str | None = None) -> Any:
        reply = super().step(name, *args, job_id=job_id)
        self._settle()
        return reply

    def step_many(self, name: str, calls: Iterable[Sequence[Arg]]) -> list[Any]:
        replies = super().step_many(name, calls)
        self._settle()
        return replies


class _InlineLanes(LaneClient):
    """Lanes that note the ids of all submits in `asked`, since a job submits others before its own submit returns."""

    def __init__(self, store: Store, serve: Callable[[str], None], pass_time: Callable[[float], bool]) -> None:
        super().__init__(store)
        self.asked: list[str] = []
        self._serve = serve
        self._pass = pass_time

    def submit(self, request: JobRequest) -> Submission:
        self._note(request)
        return super().submit(request)

    def submit_many(self, requests: Iterable[JobRequest]) -> list[Submission]:
        submitted = list(requests)
        for request in submitted:
            self._note(request)
        return super().submit_many(submitted)

    def _note(self, request: JobRequest) -> None:
        self.asked.append(request.id)
        self._serve(str(request.fields[1 + request.fields.index("class")]))

    def wait(self, job_id: str, timeout: float | None = None) -> Job:
        if job_id.startswith(validation.GRABS):
            return super().wait(job_id, timeout)
        until = math.inf if timeout is None else self.store.now() + milliseconds(timeout)
        while not (job := self.job(job_id)).waited_for:
            if not self._pass(until):
                raise WaitTimeout(job_id, job.state)
        return job


class _InlineLocks(Locks):
    def _take(self, key: str, ttl: float, wait: float) -> tuple[Lease, float]:
        return super()._take(key, ttl, min(wait, 0.01))


class _InlineResults(CacheBackend):
    """Celery's backend in memory, whose `get()` lets time pass until the result is there, and never blocks."""

    pass_time: Callable[[float], bool]
    now: Callable[[], float]

    def wait_for(self, task_id: str, timeout: float | None = None, **options: object) -> object:
        until = math.inf if timeout is None else self.now() + milliseconds(timeout)
        while self.get_task_meta(task_id, cache=False)["status"] not in READY_STATES and self.pass_time(until):
            pass
        return super().wait_for(task_id, timeout=0, **options)


class _Sender:
    """Replaces the outbox of a runner: sends the end of a job at once, in this thread."""

    def __init__(self, app: Celery, store: Store) -> None:
        self._app = app
        self._store = store

    def add(self, end: JobEnd, size: int) -> None:
        send(self._app, coalesced_into(self._store, end) if end.coalesces else end)
        self._store.step("notices_sent", self._app.main, end.job.id)

    def hurry(self) -> None:
        """Do nothing: all is sent."""


@contextmanager
def _called_at_once(app: Celery) -> Iterator[None]:
    """Inside this context, call each plain task when it is published. Calls of keyed tasks go through their lanes."""
    usual = app.send_task

    def send_task(
        name: str, args: Sequence[object] | None = None, kwargs: Mapping[str, object] | None = None, **options: object
    ) -> AsyncResult:
        task = app.tasks.get(name)
        keyed = task is not None and app.coordinator._keyed_tasks.of(task) is not None
        if task is None or (keyed and options.get("coordinate") is not False):
            return usual(name, args, kwargs, **options)
        return _call(app, name, args or (), kwargs or {}, options)

    app.send_task, before = send_task, _state._tls.current_app
    _state._set_current_app(app)  # as in a worker: Celery finds the tasks of a canvas by it
    try:
        yield
    finally:
        app.send_task = usual
        _state._set_current_app(before)


def _call(
    app: Celery, name: str, args: Sequence[object], kwargs: Mapping[str, object], options: Mapping[str, object]
) -> EagerResult:
    """Call a task and go on with its canvas, as a worker would; Celery's eager calls leave that to the caller."""
    task, task_id = app.tasks[name], options.get("task_id") or str(uuid.uuid4())
    own = {option: options[option] for option in _OF_CELERY if options.get(option) is not None}
    end = task.apply(args, kwargs, task_id=task_id, throw=False, **own)
    request = Context(
        id=task_id, task=name, args=args, kwargs=kwargs, chain=options.get("chain"), chord=options.get("chord"),
        group=options.get("group_id"), group_index=options.get("group_index"), delivery_info={},
    )  # fmt: skip
    kept = has_results(app) and not (options.get("ignore_result") or task.ignore_result)
    go_on(app, request, Ended(end.state, end.result, end.traceback), kept)
    return end
