"""`Coordinator(app)`: puts the parts into a Celery app and its workers; the one object that users hold."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias, Unpack

from coordinator.at_hand import AtHand
from coordinator.closing import Closing
from coordinator.errors import JobFailed, SettingsError
from coordinator.jobs.options import KEEP
from coordinator.later import Later
from coordinator.transactions import Transactions

if TYPE_CHECKING:
    import click
    from celery import Celery

    from coordinator.address import without_secrets
    from coordinator.broker.doorbells import Doorbells
    from coordinator.broker.transport import merge_transport, settings_of
    from coordinator.diagnosis.why import Look, causes_of
    from coordinator.documents.registry import Documents
    from coordinator.execution.results import recorded_error
    from coordinator.execution.runner import Place
    from coordinator.fleet.board import Board
    from coordinator.fleet.nodes import Node, Nodes
    from coordinator.inbox.inbox import M, inbox_maker
    from coordinator.jobs.instances import Grabbed
    from coordinator.jobs.options import Options
    from coordinator.jobs.record import Job
    from coordinator.jobs.request import JobRequest, Requests
    from coordinator.jobs.states import LaneState, Sorted
    from coordinator.jobs.submission import Submission
    from coordinator.keyed_task.calls import KeyedTasks, own_keys
    from coordinator.lanes.grab import Grab, Named, OnLosing, P, grabbed
    from coordinator.lanes.lane import Lane
    from coordinator.lanes.leases import Lease
    from coordinator.lanes.sorter import Sorter, Sorting
    from coordinator.scheduler.sources import Source
    from coordinator.scheduler.timetable import Entries
    from coordinator.settings import GivenSettings, Settings
    from coordinator.store.client import Store
    from coordinator.task_defaults import target_of
    from coordinator.worker.binding import bind
    from coordinator.worker.errands import WardenPlugin
else:  # a client, which submits, needs few of them
    Doorbells = Later("coordinator.broker.doorbells", "Doorbells")
    merge_transport = Later("coordinator.broker.transport", "merge_transport")
    settings_of = Later("coordinator.broker.transport", "settings_of")
    Look, causes_of = Later("coordinator.diagnosis.why", "Look"), Later("coordinator.diagnosis.why", "causes_of")
    Documents = Later("coordinator.documents.registry", "Documents")
    recorded_error = Later("coordinator.execution.results", "recorded_error")
    Place = Later("coordinator.execution.runner", "Place")
    Nodes = Later("coordinator.fleet.nodes", "Nodes")
    inbox_maker = Later("coordinator.inbox.inbox", "inbox_maker")
    Requests = Later("coordinator.jobs.request", "Requests")
    KeyedTasks, own_keys = Later("coordinator.keyed_task", "KeyedTasks"), Later("coordinator.keyed_task", "own_keys")
    grabbed = Later("coordinator.lanes.grab", "grabbed")
    Sorter = Later("coordinator.lanes.sorter", "Sorter")
    Entries = Later("coordinator.scheduler.timetable", "Entries")
    Settings = Later("coordinator.settings", "Settings")
    without_secrets = Later("coordinator.address", "without_secrets")
    Store = Later("coordinator.store.client", "Store")
    target_of = Later("coordinator.task_defaults", "target_of")
    bind = Later("coordinator.worker.binding", "bind")

Keys: TypeAlias = "str | Sequence[str] | None"
Asked: TypeAlias = "tuple[Keys, Mapping[str, object]] | tuple[Keys, Mapping[str, object], Options]"


class Coordinator(AtHand, Transactions, Closing):
    """Keyed jobs for the Celery app `app`; without one, a plain client of the Redis at `url` that submits.

    Connects at the first call. Settings as keyword arguments win over `app.conf` (`coordinator_*`) and the environment
    (`COORDINATOR_*`). Runners take ready jobs in turns between the groups of their keys. `fair_by` gives the group of a
    job's first key; by default it is the text before the key's first `/`, and keys without one are one group.
    """

    def __init__(
        self, app: Celery | None = None, *, fair_by: Callable[[str], str] | None = None,
        **settings: Unpack[GivenSettings],
    ) -> None:  # fmt: skip
        self.app = app
        self._fair_by = fair_by
        self._given = settings
        self.incarnation = ""  # names the life of the worker in this process, or of the one that forked it
        self.board: Board | None = None  # that worker has it too
        self.hindered = False  # the worker in this process can run no jobs
        self.one_each = False  # its pool counts tasks (--max-tasks-per-child): a runner takes one job
        self.warden_plugins: list[Callable[[str], WardenPlugin]] = []
        self.schedule_sources: list[Source] = []
        self.commands: list[click.Command] = []
        self.keyed_tasks: KeyedTasks | None = None
        if settings:
            Settings.load(settings, {}, {})
        if app is not None and not _is_app(app):
            raise SettingsError(
                f"no Celery app; for a plain client write Coordinator(url={without_secrets(str(app))!r})"
            )
        if app is not None:
            if not app.main:
                raise SettingsError("give the app a name, by which its nodes are known: Celery('shop', …)")
            if getattr(app, "coordinator", None) is not None:
                raise SettingsError(f"the app {app.main!r} has a coordinator already")
            app.coordinator = self
            self._install(app)

    @cached_property
    def entries(self) -> Entries:
        return Entries(lambda: self.store, lambda: self.requests)

    @cached_property
    def documents(self) -> Documents:
        return Documents(self)

    @cached_property
    def settings(self) -> Settings:
        return settings_of(self.app, self._given)

    @cached_property
    def store(self) -> Store:
        return Store(self.settings, self.doorbells.ring if self.app else None)

    @cached_property
    def doorbells(self) -> Doorbells:
        return Doorbells(self._bound)

    @cached_property
    def requests(self) -> Requests:
        return Requests(
            self.settings, *(target_of(self.app, self.core, self._fair_by, waits) for waits in (False, True))
        )

    def submit(self, keys: Keys, signature: Mapping[str, object], **options: Unpack[Options]) -> Submission:
        """Put a job in line: in the lane of its key or, all at once, in the lanes of its 1 to 16 keys.

        `signature`: `task.s(…)`, a chain, a group or a chord. `coordinator.Options` says what the options mean. Where
        `keys` is None, those of the task's own option `coordinate` count.

        A repeated call with the same `job_id` writes nothing and gives the outcome `duplicate`, as long as Redis keeps
        the record. Raises InvalidJob, LaneFull or ShuttingDown before anything is written. StoreRefused: nothing was
        written. StoreUnavailable: nobody knows; ask again with the error's `job_id`.
        """
        return self._made(self.core.submit(self._request(keys, signature, options)))

    def submit_many(self, jobs: Iterable[Asked]) -> list[Submission]:
        """Submit each (keys, signature) or (keys, signature, {options}), 200 in one round trip.

        All jobs are checked before any is written. An error of Redis ends the call, and its `job_ids` has the ids of
        all jobs in their order. Name each `job_id` of a repeated call so, and no job is doubled.
        """
        asked = [self._request(job[0], job[1], job[2] if len(job) == 3 else {}) for job in jobs]
        return [self._made(one) for one in self.core.submit_many(asked)]

    def _made(self, submission: Submission) -> Submission:
        """It asks this coordinator from here. A copy would cost a bulk of submits a tenth of its time."""
        object.__setattr__(submission, "_host", self)
        return submission

    def _request(self, keys: Keys, signature: Mapping[str, object], options: Options) -> JobRequest:
        self.check_open()
        if keys is None:
            keys, options = own_keys(self.keyed_tasks, signature, options)
        return self.requests.make(keys, signature, options)

    def job(self, job_id: str) -> Job:
        """Read a job's record. The id of a coalesced submit shows the job it melted into. Raises UnknownJob."""
        return self.core.job(job_id)

    def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """Wait until a job is over or held, for at most `timeout` seconds (None: without end), and give its record.

        Raises WaitTimeout (the job goes on), WouldDeadlock, UnknownJob, StoreUnavailable. A repeated call waits on.
        """
        return self.core.wait(job_id, timeout)

    def error_of(self, job: Job) -> BaseException:
        """Give the error of a job that did not succeed: its own where this process has the type, or JobFailed."""
        own = recorded_error(self.app, job) if self.app and (job.error or {}).get("module") else None
        return own or JobFailed(job.id, job.state, (job.error or {}).get("message", ""))

    def why(self, job_id: str) -> list[str]:
        """Say why a job is where it is: a chain of causes down to a root, one sentence each. Raises UnknownJob."""
        core = self.core
        found: list[str] = core.why(job_id) if hasattr(core, "why") else causes_of(Look(core), job_id)
        return found

    def counts(self) -> dict[str, int]:
        """Count the jobs in each state and each outcome, and all that were `created`; `retries`, `losses`, `faults`."""
        return self.core.counts()

    def lane(self, key: str, most: int = 100) -> Lane:
        """Read a lane: its holder, its first `most` jobs, its limit and its pause. A lane nobody used is `empty`."""
        return self.core.lane(key, most)

    def lanes(self, prefix: str = "", state: LaneState | None = None, most: int = 1000, after: str = "") -> list[Lane]:
        """Read a page of the lanes whose keys begin with `prefix`, by key; each names its first job only.

        A lane is there while it is not empty, is paused, or has a limit of its own. `state`: only lanes whose first job
        is in it. `after`: the last key of the page before.
        """
        return self.core.lanes(prefix, state, most, after)

    def nodes(self) -> list[Node]:
        """Read the nodes that are alive, by name: what each serves, its slots, its jobs and its load."""
        return Nodes(self.store).living()

    def lock(self, name: str, ttl: float = 30.0, wait: float = 0.0) -> AbstractContextManager[Lease]:
        """Hold the lane `name` inside a `with`, as a job would; give its lease. A thread renews it each `ttl` / 3.
        Inside a job of that key, it is the job's own lease. Raises Locked where it is not ours within `wait` seconds,
        LeaseLost at the end where it was lost meanwhile, WouldDeadlock, InvalidJob, StoreUnavailable.
        """
        return self._locks.lock(name, ttl, wait)

    def grab(
        self, key: str, instance: str | int | datetime, identifier: str, ttl: float = 30.0,
        on_losing: OnLosing = "incomplete", keep: float = KEEP,
    ) -> Grab:  # fmt: skip
        """Try to win an instance of a key: one process among all works on it, and the others learn who.

        `identifier` names this process to people. A thread renews the winner's lease each `ttl` / 3 seconds. `keep`: so
        long, in seconds, nobody grabs a completed instance again. `on_losing` is the state of a loser whose winner is
        at work: `incomplete`, `complete`, or `wait`, which takes an abandoned instance over. A repeated call competes
        anew. Raises InvalidJob, StoreUnavailable, StoreRefused.
        """
        return self._grabber.grab(key, instance, identifier, ttl=ttl, on_losing=on_losing, keep=keep)

    def grabs(self, key: str | None = None, most: int = 100) -> list[Grabbed]:
        """Read the instances of a key, or of all keys, the latest first; `most` of each key."""
        return self._grabber.all(key, most)

    def grabbed(
        self, key: Named, instance: Named, identifier: str = "", ttl: float = 30.0,
        on_losing: OnLosing = "incomplete", keep: float = KEEP,
    ) -> Callable[[Callable[P, object]], Callable[P, Grab | dict[str, object]]]:  # fmt: skip
        """Have a function run only where its call wins the instance. A call gives its Grab, with the `result`.

        `key` and `instance` are texts, or functions of the call's arguments. In a Celery task, a call gives the dict
        {won, winner, state, result} instead, as JSON has it. The identifier is "<host>:<pid>" where you name none.
        """
        return grabbed(lambda: self._grabber, key, instance, identifier, ttl=ttl, on_losing=on_losing, keep=keep)

    def sorter(
        self, name: str, idle_timeout: float = 10.0, max_wait: float | None = None, order: Sorted = "alphabetical"
    ) -> Sorter:
        """Make a sorter. It holds orders until no new one came for `idle_timeout` s, or for `max_wait` s at most.
        A warden then puts them in line, sorted by their ids; `order`: `alphabetical`, or `natural` (2 before 10). All
        sorters of one name hold the same orders. Raises InvalidJob.
        """
        return Sorter(self._sorters, self._request, name, idle_timeout, max_wait, order)

    def sorters(self) -> list[Sorting]:
        """Read the sorters that hold orders, by name: how many, since when and until when."""
        return self._sorters.all()

    def warden_plugin(self, make: Callable[[str], WardenPlugin]) -> None:
        """Have every node's warden start `make(node)` beside it. A repeated call starts one more."""
        self.warden_plugins.append(make)

    def inbox(self, queue: str, model: type[M], handler: Callable[[M], None]) -> None:
        """Have every node's warden read requests from this queue of the broker: see `coordinator.inbox`.

        The warden checks each by the pydantic `model` and calls `handler` with it, at least once. Raises SettingsError.
        """
        living, store = (lambda: Nodes(self.store).names()), (lambda: self.store)
        self.warden_plugin(inbox_maker(self._bound, queue, model, handler, living, store))

    def schedule_source(self, fn: Source) -> Source:
        """Have every beat ask `fn()` for more entries of the schedule. A decorator: it gives `fn` back."""
        self.schedule_sources.append(fn)
        return fn

    def _place(self) -> Place:
        assert self.board, "only a worker runs jobs"
        return Place(self.documents.node, self._lanes, self.doorbells, self.incarnation, self.board, self.one_each)

    def _install(self, app: Celery) -> None:
        app.on_after_configure.connect(merge_transport, weak=False)
        bind(app)
        self.keyed_tasks = KeyedTasks(app, self)
        self.keyed_tasks.install()


def _is_app(app: object) -> bool:
    """A process that has not loaded Celery's app has none."""
    base = sys.modules.get("celery.app.base")
    return base is not None and isinstance(app, base.Celery)
