"""The base class of `Coordinator` with the calls of programs: submit jobs, wait for them, take locks and grabs.

Most modules are imported inside functions, so that a process that only submits jobs starts within 0.1 s and 20 MB.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, Unpack

from coordinator.core.jobs.current import current_job
from coordinator.core.jobs.options import ATTEMPTS, KEEP, MOST_CALLS
from coordinator.core.jobs.validation import checks_arguments, flag, id_of
from coordinator.core.verbs import JOB, reading
from coordinator.errors import InvalidJob, JobFailed, SettingsError, ShuttingDown, UnknownJob

if TYPE_CHECKING:
    from celery import Celery
    from celery.app.task import Task

    from coordinator.core.client.on_commit import AnySession, Outbox
    from coordinator.core.events.event import Event
    from coordinator.core.grabs.grab import Grab, Grabber, Named, OnLosing, P
    from coordinator.core.jobs.hidden import Hidden
    from coordinator.core.jobs.options import CollectOptions, SubmitOptions, Uses
    from coordinator.core.jobs.record import Job
    from coordinator.core.jobs.request import JobRequest, RequestMaker
    from coordinator.core.jobs.submission import Submission
    from coordinator.core.keyed_task.calls import KeyedTasks
    from coordinator.core.lanes.client import LaneClient
    from coordinator.core.locks.leases import Lease, Renewer
    from coordinator.core.locks.locks import Locks
    from coordinator.core.quotas.client import QuotaClient
    from coordinator.core.runner.eager import EagerLanes
    from coordinator.core.settings import GivenSettings, Settings
    from coordinator.core.store.client import Store

_LOOK = 0.02  # seconds between two looks for a job that is in an outbox

Keys: TypeAlias = "str | Sequence[str] | None"
BulkJob: TypeAlias = "tuple[Keys, Mapping[str, object]] | tuple[Keys, Mapping[str, object], SubmitOptions]"


@checks_arguments
class Client:
    """The calls of a program that submits jobs and waits for them. `app`: the Celery app; without it, tasks are known
    from the nodes that are registered in the Redis at `url`.
    """

    _is_inline = False  # True in the pytest fixture, where each job runs in the thread that submits it
    _stopped_in: int | None = None  # pid of the process whose shutdown has begun; its later forks may submit again
    _node = ""
    _keyed_tasks: KeyedTasks | None = None

    def __init__(
        self, app: Celery | None = None, *, fair_by: Callable[[str], str] | None = None,
        **settings: Unpack[GivenSettings],
    ) -> None:  # fmt: skip
        self.app = app
        if fair_by is not None and not callable(fair_by):
            raise SettingsError(f"fair_by is a function that gives the group of a key, not {fair_by!r:.80}")
        self._fair_by = fair_by
        self._own_settings = settings
        # By the name of Django's database; "": that of SQLAlchemy.
        self._outboxes: dict[str, Outbox] = {}
        if settings:
            from coordinator.core.settings import Settings

            Settings.load(settings, {}, {})

    def submit(self, keys: Keys, signature: Mapping[str, object], **options: Unpack[SubmitOptions]) -> Submission:
        """Put a job in line: in the lane of its key or, all at once, in the lanes of its 1 to 16 keys.

        `signature`: `task.s(…)`, a chain, a group or a chord. `SubmitOptions` says what the options mean. Where
        `keys` is None, those of the task's own option `coordinate` count. A job that `uses` a quota may have no key,
        `[]`: it stands in no lane.

        A repeated call with the same `job_id` writes nothing and returns the outcome `duplicate`, as long as Redis
        keeps the record of the job. Raises InvalidJob, LaneFull, ShuttingDown or StoreRefused if nothing was written;
        and StoreUnavailable if the job may have been written or not: repeat the call with the `job_id` of that error.
        """
        return self._attach(self._core.submit(self._request(keys, signature, options)))

    def collect(
        self, keys: Keys, signature: Mapping[str, object], *, how: Literal["latest", "list", "merge"] = "latest",
        idle: float = 0.0, max_wait: float | None = None, most: int = MOST_CALLS, most_bytes: int | None = None,
        **options: Unpack[SubmitOptions],
    ) -> Submission:  # fmt: skip
        """Let one job collect the calls under a key, until it is claimed: a submit with the option `collect`.

        `CollectOptions` says what `how`, `idle`, `max_wait`, `most` and `most_bytes` mean. The first call's outcome is
        `queued`, its id is that of the job; the others' is `coalesced`: `job`, `wait` and `get` of any of them read the
        job. Each call is in exactly one job, also where it is repeated with its `job_id`. Raises what `submit` raises;
        InvalidJob also where the lane collects calls of another task, or in another way.
        """
        terms: CollectOptions = {
            "how": how, "idle": idle, "max_wait": max_wait, "most": most, "most_bytes": most_bytes,
        }  # fmt: skip
        options["collect"] = terms
        return self.submit(keys, signature, **options)

    def submit_many(self, jobs: Iterable[BulkJob]) -> list[Submission]:
        """Submit many jobs, each as (keys, signature) or (keys, signature, {options}), 200 in one round trip.

        All jobs are checked before any is written. An error of Redis ends the call; the attribute `job_ids` of the
        error has the ids of all jobs, in their order. Repeat the call with these as the options `job_id`: then no job
        is submitted twice.
        """
        requests = [self._request_of_many(job) for job in jobs]
        return [self._attach(submitted) for submitted in self._core.submit_many(requests)]

    def submit_on_commit(
        self, keys: Keys, signature: Mapping[str, object], *, session: AnySession | None = None,
        using: str | None = None, outbox: bool = False, **options: Unpack[SubmitOptions],
    ) -> str:  # fmt: skip
        """Submit a job when the current database transaction commits, and never if it is rolled back. Returns the id of
        the job.

        `session`: a session of SQLAlchemy, also an AsyncSession or a scoped session. Without one, the transaction is
        Django's, of the database `using` (None: the default one); outside a transaction, the job is submitted at once.

        Raises InvalidJob at once. An error of Redis is raised by the commit, which stays valid: repeat the submit under
        the returned id, or with the `job_ids` of the error. A process that dies just after the commit submits nothing.

        `outbox`: let the transaction itself write the job, into the table of an outbox (`Coordinator.outbox`); a node
        submits it after the commit. So there is a job if and only if there is the commit, and the commit asks no Redis.
        With `task_always_eager`, or the pytest fixture, the job runs at the commit, as without an outbox.
        """
        from coordinator.core.client.on_commit import on_commit

        through = flag("outbox", outbox) and not (self._is_eager or self._is_inline)
        box = self._outbox_of(session, using) if through else None
        request = self._request(keys, signature, options)
        if box is None:
            return on_commit(self._core, request, session, using)
        box.write(request, session)
        return request.id

    def _outbox_of(self, session: AnySession | None, using: str | None) -> Outbox:
        if session is not None and using is not None:
            raise InvalidJob("session= is for SQLAlchemy and using= is for Django: name one of them")
        name = "" if session is not None else using or "default"
        if name in self._outboxes:
            return self._outboxes[name]
        if session is None and "" in self._outboxes:
            raise InvalidJob("the outbox is SQLAlchemy's: name the session of the transaction, session=…")
        call = f"using={name!r}" if using else "" if session is None else "table=…, engine=…"
        also = "" if session is not None else " for Django, or name the session of SQLAlchemy, session=…"
        raise InvalidJob(f"outbox=True writes into a table that has to be declared: coordinator.outbox({call}){also}")

    def _attach(self, submission: Submission) -> Submission:
        """Give a submission this coordinator, which its `get` and `result` call. Changes the frozen object in place,
        since copies would make `submit_many` a tenth slower.
        """
        if submission._host is None:
            object.__setattr__(submission, "_host", self)
        return submission

    def _request_of_many(self, job: BulkJob) -> JobRequest:
        if not isinstance(job, list | tuple) or not (len(job) == 2 or (len(job) == 3 and isinstance(job[2], Mapping))):
            raise InvalidJob(f"submit_many takes (keys, signature) or (keys, signature, {{options}}), not {job!r:.200}")
        return self._request(job[0], job[1], job[2] if len(job) == 3 else {})

    def _request(self, keys: Keys, signature: Mapping[str, object], options: SubmitOptions) -> JobRequest:
        self._check_open()
        message = None
        if not (self.app is None or self._is_eager or self._is_inline):
            from coordinator.core.keyed_task.published import published

            signature, message = published(self.app, signature, options.get("job_id"))
        if keys is None:
            from coordinator.core.keyed_task.calls import own_keys

            keys, options = own_keys(self._keyed_tasks, signature, options)
        return self._requests.make(keys, signature, options, None, message)

    @reading(JOB)
    def job(self, job_id: str | Submission) -> Job:
        """Read the record of a job. For the id of a coalesced submit, read the job that it coalesced into. Raises
        UnknownJob.
        """
        with self._looking_in_outboxes():
            return self._core.job(id_of(job_id))

    def event(self, name: str) -> Event:
        """An event from outside for which jobs wait: `submit(key, signature, after=coordinator.event("approved/42"))`.
        Whoever knows of it sets it, once: `coordinator.event("approved/42").set({"by": "me"})`.
        """
        from coordinator.core.events.event import Event, InRedis, check_event

        return Event(check_event(name), lambda: self._eager.events if self._is_eager else InRedis(self.store))

    @contextmanager
    def _looking_in_outboxes(self) -> Iterator[None]:
        """Have an UnknownJob say where a job is that a transaction wrote, and no node has submitted yet."""
        try:
            yield
        except UnknownJob as error:
            try:
                said = self._said_of(error.job_id)
            except Exception as away:  # of the database's driver
                raise error from away
            if said:
                raise UnknownJob(error.job_id, said) from None
            raise

    def _said_of(self, job_id: str) -> str:
        """Say where in an outbox a job is; "" if it is in none."""
        return next((said for outbox in self._outboxes.values() if (said := outbox.says_of(job_id))), "")

    def wait(self, job_id: str | Submission, timeout: float | None = None) -> Job:
        """Wait until a job is over or held, for at most `timeout` seconds (None: without end), and return its record.

        Redis may be unreachable for a part of that time. Raises WaitTimeout (the job goes on; the call may be
        repeated), WouldDeadlock, UnknownJob, and StoreUnavailable if Redis is unreachable when the time is over. A job
        that is in an outbox yet is waited for.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        may_come = bool(self._outboxes)
        while True:
            left = None if timeout is None else max(0.0, deadline - time.monotonic())
            try:
                with self._looking_in_outboxes():
                    return self._core.wait(id_of(job_id), left)
            except UnknownJob as error:
                # One that left its outbox between two looks is looked for once more.
                if not (may_come or error.outbox) or time.monotonic() >= deadline:
                    raise
                may_come = bool(error.outbox)
            self.store.pause(_LOOK)

    def _error_of(self, job: Job) -> BaseException:
        """Return the exception for a job that did not succeed: that of the task if this process can import its type,
        else JobFailed.
        """
        from coordinator.core.runner.results import recorded_error

        error = job.error or {}
        own = recorded_error(self.app, job) if self.app else None
        if own is not None and "module" in error:
            return own
        failed = JobFailed(job.id, job.state, error.get("message", ""))
        failed.__cause__ = own and own.__cause__
        return failed

    def lock(
        self, name: str | None = None, ttl: float = 30.0, blocking_timeout: float | None = 0.0, *,
        uses: Uses | None = None,
    ) -> AbstractContextManager[Lease]:  # fmt: skip
        """Hold the lane `name` inside a `with`, as a job would; give its lease. A thread renews it each `ttl` / 3.
        `uses`: quotas, as a job's: with a name or without one, which makes a semaphore.

        **The call does not wait by default**: with `blocking_timeout=0`, it raises Locked at once if the lane is busy.
        `blocking_timeout`: seconds to wait for the lane; None to wait without end. Inside a job of that key, the lease
        is the job's own. Raises Locked if the lane was not free in time; LeaseLost at the end of the block if the lease
        was lost during it; WouldDeadlock, InvalidJob, StoreUnavailable.
        """
        if self._is_eager:
            return self._eager.lock(name or "")
        return self._locks.lock(name, ttl, blocking_timeout, uses=uses)

    def grab(
        self, key: str, instance: str | int | datetime, identifier: str, ttl: float = 30.0,
        on_losing: OnLosing = "wait", keep: float = KEEP, attempts: int = ATTEMPTS,
    ) -> Grab:  # fmt: skip
        """Try to win the instance `instance` of `key`: only one of all processes works on it, and the others learn
        which.

        `identifier`: the name of this process, for people. A thread renews the winner's lease every `ttl` / 3 seconds.
        `keep`: seconds for which a completed instance cannot be won again. `on_losing`: what a loser does while the
        winner works: `wait` for the end, and take over if the winner dies or fails; or do not wait, with the grab's
        state `incomplete` or `complete`. `attempts`: an instance whose work has failed so often cannot be won by this
        call. A repeated call tries again. Raises InvalidJob, StoreUnavailable, StoreRefused.
        """
        from coordinator.core.grabs.grab import Terms

        return self._grabber.grab(key, instance, identifier, Terms(ttl, on_losing, keep, attempts))

    def run_once(
        self, key: Named, instance: Named, identifier: str = "", ttl: float = 30.0,
        on_losing: OnLosing = "wait", keep: float = KEEP, attempts: int = ATTEMPTS,
    ) -> Callable[[Callable[P, object]], Callable[P, Grab | dict[str, object]]]:  # fmt: skip
        """Decorate a function so that a call runs it only if the call wins an instance, as `grab` describes. The call
        returns the Grab, whose `result` is the return value of the function.

        `key`, `instance`: texts, or functions that return these for the arguments of the call. `identifier`: "" for
        "<host>:<pid>". Inside a Celery task, a call returns a dict {won, winner, state, result}, which JSON can encode.
        """
        from coordinator.core.grabs.grab import Terms, run_once

        return run_once(lambda: self._grabber, key, instance, identifier, Terms(ttl, on_losing, keep, attempts))

    def _check_open(self) -> None:
        """Raise ShuttingDown if `stop_submitting` was called in this process, except inside a task or job."""
        if self._stopped_in == os.getpid() and not task_at_work() and not current_job():
            raise ShuttingDown("this process is shutting down, and submits no more jobs")

    def stop_submitting(self) -> None:
        """From now on, make `submit` raise ShuttingDown in this process, except inside running tasks.

        A worker calls this when it begins to shut down. A repeated call changes nothing.
        """
        self._stopped_in = os.getpid()

    def close(self) -> None:
        """Close the connections of this process to Redis, as the end of a `with` block does. The next call opens new
        connections.
        """
        if "store" in vars(self):
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The parts of the client, each created at its first use.

    @property
    def node(self) -> str:
        """The name of the worker that this process is, or is a pool process of; "" in beats and clients."""
        return self._node

    @cached_property
    def settings(self) -> Settings:
        from coordinator.core.broker import settings_of

        return settings_of(self.app, self._own_settings)

    @cached_property
    def store(self) -> Store:
        from coordinator.core.store.client import Store

        return Store(self.settings)

    @cached_property
    def _requests(self) -> RequestMaker:
        from coordinator.core.client.task_defaults import target_of
        from coordinator.core.jobs.request import RequestMaker

        return RequestMaker(
            self.settings, *(target_of(self.app, self._core, self._fair_by, waits) for waits in (False, True))
        )

    @cached_property
    def _hidden(self) -> Hidden:
        """The rule that hides secret values from people, after the setting `hidden`."""
        from coordinator.core.client.task_defaults import hidden_of

        return hidden_of(self.app, self.settings)

    @property
    def _core(self) -> LaneClient:
        """The client of the lanes in Redis. With `task_always_eager`, one that runs each job at once, in-process."""
        return self._eager if self._is_eager else self._lanes

    @property
    def _is_eager(self) -> bool:
        return self.app is not None and bool(self.app.conf.task_always_eager)

    @cached_property
    def _eager(self) -> EagerLanes:
        from coordinator.core.runner.eager import EagerLanes

        return EagerLanes(self._bound)

    @cached_property
    def _lanes(self) -> LaneClient:
        from coordinator.core.lanes.client import LaneClient

        return LaneClient(self.store)

    @cached_property
    def _quotas(self) -> QuotaClient:
        from coordinator.core.quotas.client import QuotaClient

        return QuotaClient(self._core.store)

    @cached_property
    def _locks(self) -> Locks:
        from coordinator.core.locks.locks import Locks

        return Locks(self.store, self._lanes, self._renewer)

    @cached_property
    def _renewer(self) -> Renewer:
        from coordinator.core.locks.leases import Renewer

        return Renewer(self.store)

    @cached_property
    def _grabber(self) -> Grabber:
        from coordinator.core.grabs.grab import Grabber

        return Grabber(self._core.store, self._renewer, self._lanes.holds, lambda: self.node, _is_in_task)

    @property
    def _bound(self) -> Celery:
        if self.app is None:
            raise SettingsError("this call needs a Celery app, and the coordinator was created without one")
        return self.app


def task_at_work() -> Task | None:
    """Return the Celery task that this thread runs, or None. Does not import Celery: without it, no task can run."""
    state = sys.modules.get("celery._state")
    return state and state.get_current_task()


def _is_in_task() -> bool:
    """True inside a Celery task that a worker runs, not in one that is called like a function."""
    task = task_at_work()
    return task is not None and not task.request.called_directly
