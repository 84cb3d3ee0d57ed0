"""Runs jobs in the calling thread, for the tests of your app, with a real Redis server and the library's real steps in
it.

    call ─► step in Redis ─► wake-ups ─► a runner in this thread ─► sub-results, results, links ─► until nothing can run

A call of the coordinator, such as `submit`, returns once no job is left that can run. A job whose key is busy (another
job runs, or a lock is held), or which lacks units of a quota, runs as soon as that has ended; any other job runs within
the call. Differences from real nodes:

- Delays and expiries end only when the test waits or calls `advance`, which moves the clock; given instants (`eta`,
  `expires`, a `not_before` with a date) then come nearer by as much. A failed job is retried at once unless it has a
  `retry_delay`.
- There is one node, with a slot for every job, and with each queue and label that a job needs. A job that is cancelled
  while it runs is not stopped: it ends as cancelled after its attempt.
- No other process runs jobs. So `wait` and `get` move the clock until the job ends, by `timeout` seconds at most, and
  raise WaitTimeout at once if nothing is scheduled. A lock that is held raises Locked without waiting.
- Ordinary tasks that a job or a link calls run at once, in this thread. An ordinary task that the test itself calls is
  published to the broker, as usual. If the app has a result backend, results are kept in memory instead.
"""

from __future__ import annotations

import math
import tempfile
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from celery import Celery, _state
from celery.app.task import Context
from celery.backends.cache import CacheBackend
from celery.result import AsyncResult, EagerResult
from celery.states import READY_STATES

from coordinator.coordinator import Coordinator
from coordinator.core.author import Author, act_of
from coordinator.core.fleet.nodes import Nodes
from coordinator.core.fleet.status_file import StatusFile, anonymous_file
from coordinator.core.jobs import validation
from coordinator.core.jobs.chain import CANVAS
from coordinator.core.jobs.record import Job, fields_of_many
from coordinator.core.jobs.request import JobRequest
from coordinator.core.jobs.submission import Submission
from coordinator.core.lanes.client import LaneClient
from coordinator.core.locks.leases import Lease, Renewer, holding
from coordinator.core.locks.locks import Locks
from coordinator.core.maintenance.parked import Parked
from coordinator.core.maintenance.results import Results
from coordinator.core.runner.canvas import Ended, go_on, has_results
from coordinator.core.runner.eager import InThread
from coordinator.core.runner.results import JobEnd, coalesced_into, send
from coordinator.core.runner.runner import Runner, RunnerServices, WorkerContext
from coordinator.core.settings import Settings
from coordinator.core.store.client import Store
from coordinator.core.store.connections import Connections
from coordinator.core.store.steps import job_cancel, job_lose, notices_sent, sorter_flush, sweep, work_drop
from coordinator.core.store.times import milliseconds
from coordinator.core.store.wire import Arg
from coordinator.errors import SettingsError, WaitTimeout

if TYPE_CHECKING:
    import pytest  # which a test of unittest may lack

T = TypeVar("T")

NODE = "inline"
# Held while jobs run within a job. The thread of an async body's loop is not the one that has the turn.
_inner: ContextVar[threading.RLock | None] = ContextVar("coordinator_inner_turn", default=None)
_LONG = 10 * 86400.0  # seconds of a lease, so that none expires while a debugger stops the test
# Options that are passed on when a published task is called at once.
_OF_CELERY = ("link", "link_error", "headers", "stamped_headers")
_DUE = (
    "due",
    "expiry",
    "pauses",
    "sorters",
    "timeouts",
)  # sorted sets whose scores are times of the clock that `advance` moves
_DUE_IN_MICROS = ("quotas-due",)  # the same, in µs
_NAMED = ("starts", "latest")  # sorted sets in Redis whose scores are times of the server's real clock


class Patches(Protocol):
    """Changes that are undone at the end of a test; pytest's MonkeyPatch is one."""

    def setitem(self, mapping: MutableMapping[str, object], name: str, value: object, /) -> None: ...

    def setattr(self, target: object, name: str, value: object, /) -> None: ...


class InlineJobs:
    """Runs the jobs of one test in its thread. All data are in the Redis at `url`, under a prefix of their own."""

    def __init__(self, coordinator: Coordinator, url: str) -> None:
        app = coordinator.app
        if app is None:
            raise SettingsError("a Coordinator without an app has no tasks that a test could run")
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
        fd = anonymous_file(Path(tempfile.gettempdir()))
        status_file = StatusFile(Path("/nonexistent"), fd)  # no supervisor reads this file
        self._context = WorkerContext(NODE, lanes, NODE, status_file)
        self._services: RunnerServices | None = None
        self._parked, self._results = Parked(lanes, app), Results(self._quiet, lanes, app)
        self._turn = threading.RLock()
        self._served: set[str] = set()
        self._backend = _InlineResults(app=app, backend="memory") if has_results(app) else None
        if self._backend:
            self._backend.pass_time, self._backend.now = self._pass, self._quiet.now

    def install(self, patches: Patches) -> None:
        """Make the app's coordinator run its jobs through this object. `patches` undoes this at the end of the test."""
        parts = vars(self._app.coordinator)
        for name in (
            "_grabber",
            "_parked",
            "_quotas",
            "_requests",
            "_results",
            "_sorters",
            "entries",
        ):  # deleted, so that the coordinator makes new ones, with this store
            patches.setitem(parts, name, None)
            del parts[name]
        for name, part in (
            ("settings", self.settings), ("store", self.store), ("_lanes", self.lanes), ("_locks", self.locks),
            ("_renewer", self._renewer), ("_is_inline", True),
        ):  # fmt: skip
            patches.setitem(parts, name, part)
        patches.setitem(self._app.conf.changes, "task_always_eager", False)
        if self._backend:
            patches.setattr(self._app, "_backend_cache", self._backend)
        self._serve()

    def close(self) -> None:
        self._quiet.close()
        self._context.status_file.close()

    @property
    def submitted(self) -> list[Job]:
        """The jobs that were submitted in this test, in order, in their current state. Submits that were skipped,
        coalesced or repeated are left out.
        """
        ids = list(dict.fromkeys(self.lanes.submitted))
        states = zip(ids, fields_of_many(self._quiet, ids, "state", "alias", "skipped"), strict=True)
        return [self.lanes.job(job_id) for job_id, (state, *others) in states if state and not any(others)]

    def advance(self, seconds: float) -> None:
        """Move the clock forward by `seconds`, and run the delayed jobs, retries, expiries and sorters that become due,
        in order of time.
        """
        until = self._quiet.now() + milliseconds(seconds)
        while self._pass(until):
            pass
        self._move_clock(until - self._quiet.now())

    def _pass(self, until: float) -> bool:
        """Move the clock to the next time at which something is scheduled (a delayed job, retry, expiry or sorter), and
        run that. Returns False, and does nothing, if that is later than `until` (ms of the installation's clock).
        """
        names = (*_DUE, *_NAMED, *_DUE_IN_MICROS)
        sets = [("ZRANGE", self._quiet.key(name), 0, 0, "WITHSCORES") for name in names]
        firsts, clock = self._quiet.read_many(sets), self._quiet.clock()
        due = min((_instant(name, reply[0][1]) - (clock.wall if name in _NAMED else clock.now)
                   for name, reply in zip(names, firsts, strict=True) if reply), default=None)  # fmt: skip
        if due is None or clock.now + due > until:
            return False
        self._move_clock(due)
        sweep(self.store, 0, milliseconds(_LONG))
        while sorter_flush(self.store, 300):
            pass
        return True

    def _move_clock(self, ms: int) -> None:
        """Move the clock of the installation forward by `ms`: the server's clock plus an offset
        (functions/rules/base.lua).

        The server's real clock cannot be moved, so the times in Redis that refer to it are moved nearer instead.
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
        """Run ready jobs in this thread until none is left."""
        with _inner.get() or self._turn, _called_at_once(self._app):
            mark = _inner.set(threading.RLock())
            try:
                while self._is_woken() or self._maintain():
                    while self._wakes:
                        self._run(self._wakes.popleft())
            finally:
                _inner.reset(mark)

    def _is_woken(self) -> bool:
        wakes: list[bytes] | None = self._quiet.read("LPOP", self._quiet.key("wakes", NODE, NODE), 1000)
        self._wakes.extend(wake.decode() for wake in wakes or ())
        return bool(self._wakes)

    def _run(self, wake: str) -> None:
        """Run the job that the text of a wake-up names. The job does not own the locks that the calling test holds."""
        if self._services is None:
            self._services = RunnerServices(self._app, self._context)
            self._services.tracers = InThread(self._app, NODE)
            self._services.outbox = _Sender(self._app, self._quiet)  # type: ignore[assignment]
        runner = Runner(self._app, self._context, self._services)
        context = copy_context()
        context.run(holding.set, ())
        try:
            context.run(runner.run, wake)
        except BaseException:
            self._end(runner.id)
            raise

    def _end(self, runner: str) -> None:
        """Cancel the job that a runner was running when an interrupt or a failed assertion of pytest ended it, so that
        its lane is free. `runner`: the id of the runner.
        """
        work = self._quiet.key("work", NODE)
        if held := self._quiet.read("HGET", work, runner):
            token, _, job_id = held.decode().split(" ", 2)
            job_cancel(self._quiet, job_id, act_of("the test ended", Author(NODE, "system")))
            job_lose(self._quiet, job_id, token, "lost", '"the test ended"', 0)
            work_drop(self._quiet, NODE, runner, token)

    def _maintain(self) -> bool:
        """Do once what a node does besides running jobs: register new queues, store results not yet sent, check parked
        jobs, tell the rest of many dependants, and detect deadlocks of waiting jobs. Returns True if a job can run now,
        or a parked job continued.
        """
        parked, unsent = (self._quiet.key(kind, self._app.main) for kind in ("parked", "unsent"))
        classes, waiting, owed, untold = self._quiet.read_many(
            [
                ("SMEMBERS", self._quiet.key("classes")), ("ZRANGE", parked, 0, -1), ("ZCARD", unsent),
                ("EXISTS", self._quiet.key("ended-causes")),
            ]
        )  # fmt: skip
        self._serve(*(node_class.decode() for node_class in classes))
        while owed and self._results.step():
            pass
        if untold:
            sweep(self._quiet, 0, milliseconds(_LONG))
        if not waiting:
            return self._is_woken() or bool(untold)
        self._quiet.read("ZADD", parked, *(part for job_id in waiting for part in (0, job_id)))
        self._parked.step()
        if waiting == self._quiet.read("ZRANGE", parked, 0, -1):
            sweep(self._quiet, 0, milliseconds(_LONG))
        return self._is_woken() or waiting != self._quiet.read("ZRANGE", parked, 0, -1)

    def _serve(self, *classes: str) -> None:
        """Register the node `inline` in Redis, with all tasks and queues of the app, and with the queue and labels of
        the routing classes `classes`.
        """
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


def _instant(name: str, score: bytes | float) -> int:
    """The instant in ms that a score of this sorted set is."""
    return math.ceil(float(score) / (1000 if name in _DUE_IN_MICROS else 1))


class _InlineConnections(Connections):
    def _check_thread(self) -> None:
        """Accept blocking calls in the thread of an asyncio event loop, since a test has only one thread."""


def refuse_real_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a test fail if it calls a coordinator's real Redis instead of the private one, even in code that catches all
    exceptions.
    """
    import pytest

    usual = Store.call

    def call(store: Store, ask: Callable[[], T], job_id: str | None = None) -> T:
        if not isinstance(store.connections, _InlineConnections):
            pytest.fail(
                f"the test calls the coordinator's Redis at {store.where}: use the fixture coordinator_jobs, and call "
                "coordinator_jobs(coordinator) first; to use a real Redis, override the fixture coordinator_no_redis"
            )
        return usual(store, ask, job_id)

    monkeypatch.setattr(Store, "call", call)


class _Settling(Store):
    """The connection to Redis for the test and its tasks. After each step that changes jobs, all ready jobs run in the
    calling thread (`settle`). `quiet`: the store without this.
    """

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
    """A client of the lanes that lists the ids of all submits in `submitted`, in order. Each is noted before the
    submit, since the job runs within it, and may submit others.
    """

    def __init__(self, store: Store, serve: Callable[[str], None], pass_time: Callable[[float], bool]) -> None:
        super().__init__(store)
        self.submitted: list[str] = []
        self._serve = serve
        self._pass = pass_time

    def submit(self, request: JobRequest) -> Submission:
        self._note(request)
        return super().submit(request)

    def submit_many(self, requests: Iterable[JobRequest]) -> list[Submission]:
        all_requests = list(requests)
        for request in all_requests:
            self._note(request)
        return super().submit_many(all_requests)

    def _note(self, request: JobRequest) -> None:
        self.submitted.append(request.id)
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
    def _take(self, key: str, uses: str, ttl: float, wait: float) -> tuple[Lease, float]:
        return super()._take(key, uses, ttl, min(wait, 0.01))


class _InlineResults(CacheBackend):
    """Celery's result backend in memory. `AsyncResult.get` does not block: it moves the clock until the result is
    stored.
    """

    pass_time: Callable[[float], bool]
    now: Callable[[], float]

    def wait_for(self, task_id: str, timeout: float | None = None, **options: object) -> object:
        until = math.inf if timeout is None else self.now() + milliseconds(timeout)
        while self.get_task_meta(task_id, cache=False)["status"] not in READY_STATES and self.pass_time(until):
            pass
        return super().wait_for(task_id, timeout=0, **options)


class _Sender:
    """Replaces the outbox of a runner, a background thread: stores the result of an ended job and calls its links at
    once, in this thread.
    """

    def __init__(self, app: Celery, store: Store) -> None:
        self._app = app
        self._store = store

    def add(self, end: JobEnd, size: int) -> None:
        send(self._app, coalesced_into(self._store, end) if end.coalesces else end)
        notices_sent(self._store, self._app.main, end.job.id)

    def hurry(self) -> None:
        """Do nothing, since `add` has sent every result already."""


@contextmanager
def _called_at_once(app: Celery) -> Iterator[None]:
    """Inside this context, run each ordinary task at once instead of publishing it. Keyed tasks still go
    through lanes.
    """
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
    _state._set_current_app(app)  # as in a worker, since Celery finds the tasks of a canvas through the current app
    try:
        yield
    finally:
        app.send_task = usual
        _state._set_current_app(before)


def _call(
    app: Celery, name: str, args: Sequence[object], kwargs: Mapping[str, object], options: Mapping[str, object]
) -> EagerResult:
    """Run a task in this thread, and then the next tasks of its chain, group or chord, as a worker would; Celery's
    `apply` does not do the latter. `options`: those of `apply_async`.
    """
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
