"""`Coordinator(app)`: the one object that users hold. It puts the parts into a Celery app and its workers.

Imports inside its functions keep the start of a client cheap: below 0.1 s and 20 MB.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, Unpack, overload

from coordinator.author import Acting, act_of, for_somebody, refuses_viewers
from coordinator.errors import InvalidJob, JobFailed, SettingsError, ShuttingDown
from coordinator.extension import Extension
from coordinator.jobs.current import current_job
from coordinator.jobs.options import ATTEMPTS, KEEP
from coordinator.jobs.validation import check_end, check_key, checks_arguments, id_of, shown

if TYPE_CHECKING:
    from celery import Celery
    from celery.app.task import Task

    from coordinator.client.on_commit import AnySession
    from coordinator.diagnosis.cause import Why
    from coordinator.diagnosis.finding import Finding
    from coordinator.diagnosis.lost import LostNode
    from coordinator.diagnosis.summary import Summary
    from coordinator.fleet.board import Board
    from coordinator.fleet.nodes import Node
    from coordinator.grabs.grab import Grab, Grabber, Named, OnLosing, P
    from coordinator.jobs.hidden import Hidden
    from coordinator.jobs.instances import GrabRecord
    from coordinator.jobs.options import SubmitOptions
    from coordinator.jobs.rates import Rates
    from coordinator.jobs.record import Job
    from coordinator.jobs.request import JobRequest, RequestMaker
    from coordinator.jobs.retarget import Retargeted
    from coordinator.jobs.search import Found, JobFilter
    from coordinator.jobs.states import End, LaneState, Sorted, State
    from coordinator.jobs.submission import Submission
    from coordinator.jobs.trail import Action
    from coordinator.keyed_task.calls import KeyedTasks
    from coordinator.lanes.bulk import ActingOn, Progress, Verb
    from coordinator.lanes.client import LaneClient
    from coordinator.lanes.plan import Plan
    from coordinator.lanes.view import Holder, Lane, Lines
    from coordinator.locks.leases import Lease, Renewer
    from coordinator.locks.locks import Locks
    from coordinator.runner.eager import EagerLanes
    from coordinator.runner.runner import Place
    from coordinator.scheduler.sources import Source
    from coordinator.scheduler.steering import Entries
    from coordinator.settings import GivenSettings, Settings
    from coordinator.sorters.sorter import Sorter, Sorters, SorterStatus
    from coordinator.store.client import Store
    from coordinator.warden.errands.duties import WardenPlugin
    from coordinator.warden.errands.parked import Parked
    from coordinator.warden.errands.results import Results
    from coordinator.warden.errands.trouble_reports import TroubleReports
    from coordinator.warden.inbox.inbox import M
    from coordinator.warden.inbox.refused import RefusedRequest, RefusedRequests

Keys: TypeAlias = "str | Sequence[str] | None"
Asked: TypeAlias = "tuple[Keys, Mapping[str, object]] | tuple[Keys, Mapping[str, object], SubmitOptions]"


@checks_arguments
class Coordinator:
    """Keyed jobs for the Celery app `app`; without one, a plain client of the Redis at `url` that submits.

    Connects at the first call. Settings as keyword arguments win over `app.conf` (`coordinator_*`) and the environment
    (`COORDINATOR_*`). Runners take ready jobs in turns between the groups of their keys. `fair_by` gives the group of a
    job's first key; by default it is the text before the key's first `/`, and keys without one are one group.
    """

    _is_inline = False  # the pytest fixture has its jobs run in the thread that submits them
    _stopped_in: int | None = None  # the pid: a process forked later begins anew

    def __init__(
        self, app: Celery | None = None, *, fair_by: Callable[[str], str] | None = None,
        **settings: Unpack[GivenSettings],
    ) -> None:  # fmt: skip
        self.app = app
        if fair_by is not None and not callable(fair_by):
            raise SettingsError(f"fair_by is a function that gives the group of a key, not {fair_by!r:.80}")
        self._fair_by = fair_by
        self._own_settings = settings
        self._node = ""
        self._incarnation = ""  # names the life of the worker in this process, or of the one that forked it
        self._board: Board | None = None  # that worker has it too
        self._hindered = False  # the worker in this process can run no jobs
        self._one_each = False  # a runner takes one job: its pool looks after each (--max-tasks-per-child)
        self._warden_plugins: list[Callable[[str], WardenPlugin]] = []
        self._schedule_sources: list[Source] = []
        # Labels that jobs here need, and that a node may lose: the function says which nodes lost it, and why.
        self.needed_labels: dict[str, Callable[[Store], list[str]]] = {}
        self.extensions: list[Extension] = []
        self._keyed_tasks: KeyedTasks | None = None
        if settings:
            from coordinator.settings import Settings

            Settings.load(settings, {}, {})
        if app is not None and not _is_app(app):
            raise SettingsError(
                "the first argument is no Celery app; a plain client names its Redis: Coordinator(url='redis://…')"
            )
        if app is not None:
            if not app.main:
                raise SettingsError("give the app a name, by which its nodes are known: Celery('shop', …)")
            if getattr(app, "coordinator", None) is not None:
                raise SettingsError(f"the app {app.main!r} has a coordinator already")
            app.coordinator = self
            self._install(app)

    def submit(self, keys: Keys, signature: Mapping[str, object], **options: Unpack[SubmitOptions]) -> Submission:
        """Put a job in line: in the lane of its key or, all at once, in the lanes of its 1 to 16 keys.

        `signature`: `task.s(…)`, a chain, a group or a chord. `SubmitOptions` says what the options mean. Where
        `keys` is None, those of the task's own option `coordinate` count.

        A repeated call with the same `job_id` writes nothing and gives the outcome `duplicate`, as long as Redis keeps
        the record. Raises InvalidJob, LaneFull or ShuttingDown before anything is written. StoreRefused: nothing was
        written. StoreUnavailable: nobody knows; ask again with the error's `job_id`.
        """
        return self._attach(self._core.submit(self._request(keys, signature, options)))

    def submit_many(self, jobs: Iterable[Asked]) -> list[Submission]:
        """Submit each (keys, signature) or (keys, signature, {options}), 200 in one round trip.

        All jobs are checked before any is written. An error of Redis ends the call, and its `job_ids` has the ids of
        all jobs in their order. Name each `job_id` of a repeated call so, and no job is doubled.
        """
        asked = [self._request_of_many(job) for job in jobs]
        return [self._attach(submitted) for submitted in self._core.submit_many(asked)]

    def submit_on_commit(
        self, keys: Keys, signature: Mapping[str, object], *, session: AnySession | None = None,
        using: str | None = None, **options: Unpack[SubmitOptions],
    ) -> str:  # fmt: skip
        """Submit the job once the current transaction commits, never where it is rolled back. Gives the job's id.

        `session`: of SQLAlchemy, also an AsyncSession or a scoped one. Without one, Django's transaction of the
        database `using` counts; outside any, the job is submitted at once. Raises InvalidJob at the call. An error of
        Redis comes out of the commit, which holds: ask again with its `job_ids`, or under the id that the call gave. A
        process that dies just after the commit submits nothing.
        """
        from coordinator.client.on_commit import on_commit

        return on_commit(self._core, self._request(keys, signature, options), session, using)

    def _attach(self, submission: Submission) -> Submission:
        """Attach this coordinator in place: copying would make submit_many a tenth slower."""
        if submission._host is None:
            object.__setattr__(submission, "_host", self)
        return submission

    def _request_of_many(self, job: Asked) -> JobRequest:
        if not isinstance(job, list | tuple) or not (len(job) == 2 or (len(job) == 3 and isinstance(job[2], Mapping))):
            raise InvalidJob(f"submit_many takes (keys, signature) or (keys, signature, {{options}}), not {job!r:.200}")
        return self._request(job[0], job[1], job[2] if len(job) == 3 else {})

    def _request(self, keys: Keys, signature: Mapping[str, object], options: SubmitOptions) -> JobRequest:
        self._check_open()
        message = None
        if not (self.app is None or self._is_eager or self._is_inline):
            from coordinator.keyed_task.published import published

            signature, message = published(self.app, signature, options.get("job_id"))
        if keys is None:
            from coordinator.keyed_task.calls import own_keys

            keys, options = own_keys(self._keyed_tasks, signature, options)
        return self._requests.make(keys, signature, options, None, message)

    def job(self, job_id: str | Submission) -> Job:
        """Read a job's record. The id of a coalesced submit shows the job it coalesced into. Raises UnknownJob."""
        return self._core.job(id_of(job_id))

    def wait(self, job_id: str | Submission, timeout: float | None = None) -> Job:
        """Wait until a job is over or held, for at most `timeout` seconds (None: without end), and give its record.

        Redis may be away meanwhile. Raises WaitTimeout (the job goes on), WouldDeadlock, UnknownJob; StoreUnavailable
        where Redis is away when the time is over. A repeated call waits on.
        """
        return self._core.wait(id_of(job_id), timeout)

    def _error_of(self, job: Job) -> BaseException:
        """The error of a job that did not succeed: its own where this process has the type, or JobFailed."""
        from coordinator.runner.results import recorded_error

        error = job.error or {}
        own = recorded_error(self.app, job) if self.app else None
        if own is not None and "module" in error:
            return own
        failed = JobFailed(job.id, job.state, error.get("message", ""))
        failed.__cause__ = own and own.__cause__
        return failed

    def why(
        self, /, job: str | Submission | None = None, *, key: str | None = None, node: str | None = None,
        entry: str | None = None, **other: str,
    ) -> Why:  # fmt: skip
        """Say why a job is where it is: a sentence, and all causes down to their roots, each with a stable code.

        Or why a lane (`key`) stands, why a `node` does nothing, why an `entry` of the schedule does not run, or what an
        extension explains, by its kind (`member="…"`). Raises InvalidJob unless one of them is named, UnknownJob,
        UnknownEntry.
        """
        from coordinator.diagnosis.why import why_of

        wanted = {"job": None if job is None else id_of(job), "key": key, "node": node, "entry": entry, **other}
        kinds = {kind: explain for extension in self.extensions for kind, explain in extension.why.items()}
        return why_of(self._core, wanted, self.needed_labels, lambda: self.entries, kinds)

    def why_summary(self) -> Summary:
        """Count all jobs that wait, by the code of their cause, with the longest wait of each and an example.

        It reads a bounded part of everything, and says whether that was all.
        """
        from coordinator.diagnosis.snapshot import Snapshot
        from coordinator.diagnosis.summary import why_summary

        return why_summary(Snapshot(self._core, self.needed_labels))

    def doctor(self) -> list[Finding]:
        """Look for faults and dangers: of Redis, the nodes, what nobody owns, the extensions, and the app; errors
        first. A Redis that is away is a finding, too. Reads a bounded part of everything. Raises SettingsError.
        """
        from coordinator.diagnosis.finding import sorted_findings

        findings = self._findings()
        if self.app is not None:
            from coordinator.client.app_check import of_app

            findings += of_app(self.app, imports=not for_somebody())
        return sorted_findings(findings)

    def _findings(self) -> list[Finding]:
        """Those of Redis and of what stands in it, and those of the extensions."""
        from coordinator.diagnosis.doctor import examine

        more = (finding for one in self.extensions if one.findings for finding in one.findings())
        return examine(self._looked_at, self.needed_labels, more)

    def jobs(self, *, most: int = 50, after: str = "", **wanted: Unpack[JobFilter]) -> Found:
        """Find jobs: those in no line yet, those in line by lane, then those that are over, the latest first.

        `JobFilter` says what the filters mean. `after`: `Found.after` of the page before. A job that moves on while
        pages are turned may come again in its new state; none is left out. Task, node, error and text are searched in
        the first 10,000 jobs that the other filters leave, from `after` on. Raises InvalidJob.
        """
        from coordinator.jobs.search import search

        return search(self._looked_at, most, after, self._unseen, **wanted)

    def counts(self) -> dict[str, int]:
        """Count the jobs in each state and each outcome, and all that were `created`; `retries`, `losses`, `faults`."""
        return self._core.counts()

    def rates(self) -> Rates:
        """Read how many jobs were submitted, ended and failed in the last hour and day, and in each of its minutes."""
        from coordinator.jobs.rates import rates_of

        return rates_of(self._looked_at)

    def lane(self, key: str, most: int = 100, runs: int = 10) -> Lane:
        """Read a lane: its holders, its first `most` jobs, its limit, its pause, and its last `runs`, the latest first.

        A lane that nobody used is `empty`.
        """
        from coordinator.jobs.validation import check_key, count
        from coordinator.lanes.view import whole

        return whole(self._looked_at, check_key(key), most, count("runs", runs))

    def lanes(self, prefix: str = "", state: LaneState | None = None, most: int = 1000, after: str = "") -> list[Lane]:
        """Read a page of the lanes whose keys begin with `prefix`, by key; each names its first job only.

        A lane is there while it is not empty, is paused, or has a limit of its own. `state`: only lanes whose first job
        is in it. `after`: the last key of the page before.
        """
        return self._core.lanes(prefix, state, most, after)

    def line(self, lane: Lane) -> list[Job]:
        """Read the records of the lane's `jobs`, in their order; of those that are gone since, none."""
        from coordinator.jobs.record import read_many
        from coordinator.lanes.view import Lane

        if not isinstance(lane, Lane):
            raise InvalidJob(f"line takes the Lane that lane() gives, not {shown(lane)}")
        return list(read_many(self._looked_at, lane.jobs))

    def locks(self, most: int = 100) -> list[tuple[str, Holder]]:
        """Read the lanes that plain code holds with `lock`: key and holder, those first whose leases end first."""
        from coordinator.lanes.view import locks

        return locks(self._looked_at, most)

    def contended(self, most: int = 5) -> Lines:
        """Read the lanes with the longest lines, the longest first; of more than 10,000 that have lines, among as many
        that are drawn by chance.
        """
        from coordinator.lanes.view import contended

        return contended(self._looked_at, most)

    def nodes(self) -> list[Node]:
        """Read the nodes that are alive, by name: what each serves, its slots, its jobs and its load."""
        from coordinator.fleet.nodes import Nodes

        return Nodes(self._looked_at).living()

    def lost_nodes(self) -> list[LostNode]:
        """Read the nodes that were killed or cut off within the last hour, the newest first, and who has their jobs."""
        from coordinator.diagnosis.lost import lost_nodes
        from coordinator.diagnosis.snapshot import Snapshot

        return lost_nodes(Snapshot(self._core))

    @overload
    def retarget(
        self, old: str, new: str, *, dry_run: Literal[False] = False, **acting: Unpack[Acting]
    ) -> Retargeted: ...
    @overload
    def retarget(self, old: str, new: str, *, dry_run: Literal[True], **acting: Unpack[Acting]) -> Plan: ...
    @refuses_viewers
    def retarget(self, old: str, new: str, *, dry_run: bool = False, **acting: Unpack[Acting]) -> Retargeted | Plan:
        """Give the jobs of the task `old` that are not at work the task `new`, and its app and queue.

        That holds for their later steps, rollbacks and links, too. **Jobs that run or are parked stay as they are**,
        and later steps of theirs, too: ask again once they are over. Gives how many `jobs` were changed, and how many
        `at_work` stayed; so does the Plan. Raises InvalidJob where nobody has the new task.
        """
        from coordinator.client.task_defaults import place_of
        from coordinator.jobs.retarget import retarget
        from coordinator.jobs.trail import OnMany

        own, (app, queue) = self.app.main if self.app else "", place_of(self.app, self._core, new)

        def place(kind: str) -> str | None:
            former, _, *labels = kind.split("\n")
            return None if own and former not in ("", own) else "\n".join((app, queue, *labels))

        if dry_run:
            from coordinator.lanes.plan import of_retarget

            return of_retarget(self._looked_at, old, new, place)
        act = OnMany(self.store, "retarget", "task", old, old, f"{new}, ", **acting)
        done = retarget(self.store, old, new, place, act.text)
        act.ended()
        return done

    def lock(self, name: str, ttl: float = 30.0, blocking_timeout: float | None = 0.0) -> AbstractContextManager[Lease]:
        """Hold the lane `name` inside a `with`, as a job would; give its lease. A thread renews it each `ttl` / 3.

        **It does not wait unless you say so**: with the default, 0, it raises Locked at once where the lane is busy.
        `blocking_timeout`: so many seconds it waits for its turn; None waits for ever. Inside a job of that key, it is
        the job's own lease. Raises Locked where it is not ours in time, LeaseLost at the end where it was lost
        meanwhile, WouldDeadlock, InvalidJob, StoreUnavailable.
        """
        return self._eager.lock(name) if self._is_eager else self._locks.lock(name, ttl, blocking_timeout)

    def grab(
        self, key: str, instance: str | int | datetime, identifier: str, ttl: float = 30.0,
        on_losing: OnLosing = "wait", keep: float = KEEP, attempts: int = ATTEMPTS,
    ) -> Grab:  # fmt: skip
        """Try to win an instance of a key: one process among all works on it, and the others learn who.

        `identifier` names this process to people. A thread renews the winner's lease each `ttl` / 3 seconds. `keep`: so
        long, in seconds, nobody grabs a completed instance again. `on_losing`: `wait` for the winner's end, and take
        over where it died or failed; else the state of a loser whose winner is at work, `incomplete` or `complete`.
        Work that failed `attempts` times is left: each caller goes by its own number. A repeated call competes anew.
        Raises InvalidJob, StoreUnavailable, StoreRefused.
        """
        from coordinator.grabs.grab import Terms

        return self._grabber.grab(key, instance, identifier, Terms(ttl, on_losing, keep, attempts))

    def grabs(self, key: str | None = None, most: int = 100, after: str = "") -> list[GrabRecord]:
        """Read a page of the instances of a key, or of all: by key, and of each key the latest first.

        `after`: the `cursor` of the last one of the page before. Raises InvalidJob where that is forgotten.
        """
        return self._grabber.all(key, most, after)

    @refuses_viewers
    def release_grab(
        self, key: str, instance: str | int | datetime, attempt: int | None = None, **acting: Unpack[Acting]
    ) -> str | None:
        """Take an instance from its winner, and give the winner's identifier; None where nobody works on it.

        A process is fenced out at once, and one that waits takes over, or the next that asks. A job is cancelled. Work
        that has failed for good may be tried again. `attempt`: only from the winner of that attempt, so that asking
        again after an answer that was lost takes it from nobody else. Raises InvalidJob.
        """
        return self._grabber.release(key, instance, attempt, act_of(**acting))

    def run_once(
        self, key: Named, instance: Named, identifier: str = "", ttl: float = 30.0,
        on_losing: OnLosing = "wait", keep: float = KEEP, attempts: int = ATTEMPTS,
    ) -> Callable[[Callable[P, object]], Callable[P, Grab | dict[str, object]]]:  # fmt: skip
        """Have a function run only where its call wins the instance. A call gives its Grab, with the `result`.

        `key` and `instance` are texts, or functions of the call's arguments. In a Celery task, a call gives the dict
        {won, winner, state, result} instead, as JSON has it. The identifier is "<host>:<pid>" where you name none.
        """
        from coordinator.grabs.grab import Terms, run_once

        return run_once(lambda: self._grabber, key, instance, identifier, Terms(ttl, on_losing, keep, attempts))

    def sorter(
        self, name: str, idle_timeout: float = 10.0, max_wait: float | None = None, order: Sorted = "alphabetical"
    ) -> Sorter:
        """Make a sorter. It holds orders until no new one came for `idle_timeout` s, or for `max_wait` s at most.
        A warden then puts them in line, sorted by their ids; `order`: `alphabetical`, or `natural` (2 before 10). All
        sorters of one name hold the same orders. Raises InvalidJob.
        """
        from coordinator.sorters.sorter import Sorter

        return Sorter(self._sorters, self._request, name, idle_timeout, max_wait, order)

    def sorters(self) -> list[SorterStatus]:
        """Read the sorters that hold orders, by name: how many, since when and until when."""
        return self._sorters.all()

    # Acts of operators. `by` is the host's name where you give none.

    @overload
    def cancel(
        self, job_id: str | Submission, *, dry_run: Literal[False] = False, **acting: Unpack[Acting]
    ) -> State: ...
    @overload
    def cancel(self, job_id: str | Submission, *, dry_run: Literal[True], **acting: Unpack[Acting]) -> Plan: ...
    @refuses_viewers
    def cancel(self, job_id: str | Submission, *, dry_run: bool = False, **acting: Unpack[Acting]) -> State | Plan:
        """End a job, and give its state after the call: `cancelled`, or `running` until its process was stopped.

        A job that was started is rolled back where it has a rollback. A job that is over stays as it is, so a repeated
        call changes nothing. `dry_run`: give the Plan, and do nothing. Raises UnknownJob.
        """
        if dry_run:
            from coordinator.lanes.plan import Projection, of_cancel

            return of_cancel(look := Projection(self._looked_at), [look.job(id_of(job_id))])
        return self._core.cancel(id_of(job_id), **acting)

    @overload
    def retry(
        self, job_id: str | Submission, *, to: End = "back", dry_run: Literal[False] = False, **acting: Unpack[Acting]
    ) -> State: ...
    @overload
    def retry(
        self, job_id: str | Submission, *, to: End = "back", dry_run: Literal[True], **acting: Unpack[Acting]
    ) -> Plan: ...
    @refuses_viewers
    def retry(
        self, job_id: str | Submission, *, to: End = "back", dry_run: bool = False, **acting: Unpack[Acting]
    ) -> State | Plan:
        """Let a held job go on, a retrying one at once, and put one that ended badly in line anew; give its new state.

        `to`: the `back` or the `front` of the jobs of its priority. Another job stays as it is, so a repeated call
        changes nothing while the job waits or runs. `dry_run`: give the Plan, and do nothing. Raises InvalidJob,
        UnknownJob.
        """
        if dry_run:
            from coordinator.lanes.plan import Projection, of_retry

            check_end(to)
            return of_retry(look := Projection(self._looked_at), [look.job(id_of(job_id))], to)
        return self._core.retry(id_of(job_id), to=to, **acting)

    @overload
    def move(
        self, job_id: str | Submission, *, priority: int | None = None, to: End = "back", token: str | None = None,
        dry_run: Literal[False] = False, **acting: Unpack[Acting],
    ) -> State: ...  # fmt: skip
    @overload
    def move(
        self, job_id: str | Submission, *, priority: int | None = None, to: End = "back", token: str | None = None,
        dry_run: Literal[True], **acting: Unpack[Acting],
    ) -> Plan: ...  # fmt: skip
    @refuses_viewers
    def move(
        self, job_id: str | Submission, *, priority: int | None = None, to: End = "back", token: str | None = None,
        dry_run: bool = False, **acting: Unpack[Acting],
    ) -> State | Plan:  # fmt: skip
        """Move a job that was not started to the `back` or `front` of its priority, or of another one (-255 to 255).

        Gives its state. A repeated call moves it again; with the same `token` it is moved once. `dry_run`: give the
        Plan, and do nothing. Raises InvalidJob where the job was started or stands in no line, and UnknownJob.
        """
        if dry_run:
            from coordinator.lanes.plan import Projection, of_move

            check_end(to)
            return of_move(look := Projection(self._looked_at), [look.job(id_of(job_id))], priority, to)
        return self._core.move(id_of(job_id), priority=priority, to=to, **acting, token=token)

    @refuses_viewers
    def set_limit(self, key: str, limit: int, **acting: Unpack[Acting]) -> int:
        """Let so many jobs of this lane run at once (0 to 1000), strictly in line, and give the limit before.

        1 is usual; at 0 nothing starts. A greater limit starts waiters at once, a smaller one stops nobody.
        """
        return self._core.set_limit(key, limit, **acting)

    @overload
    def release(
        self, key: str, *, holder: str = "", dry_run: Literal[False] = False, **acting: Unpack[Acting]
    ) -> str | None: ...
    @overload
    def release(self, key: str, *, holder: str = "", dry_run: Literal[True], **acting: Unpack[Acting]) -> Plan: ...
    @refuses_viewers
    def release(
        self, key: str, *, holder: str = "", dry_run: bool = False, **acting: Unpack[Acting]
    ) -> str | Plan | None:
        """Take the lane from the job that holds it; give its id, or None where no job holds the lane.

        That job ends as cancelled, without rollback, and the next one starts. Of several it is the one that was started
        first. `holder`: take it from this job only, so that a repeated call takes it from no other one. `dry_run`: give
        the Plan, and do nothing. Raises InvalidJob.
        """
        if dry_run:
            from coordinator.lanes.plan import Projection, of_release

            return of_release(Projection(self._looked_at), check_key(key), holder)
        return self._core.release(key, **acting, holder=holder)

    @refuses_viewers
    def pause(self, key: str, **acting: Unpack[Acting]) -> bool:
        """Start nothing more of this lane until `resume`; running jobs go on. False: it was paused already."""
        return self._core.pause(key, **acting)

    @refuses_viewers
    def resume(self, key: str, **acting: Unpack[Acting]) -> bool:
        """Let a paused lane go on. False: it was not paused."""
        return self._core.resume(key, **acting)

    @refuses_viewers
    def drain(self, node: str, **acting: Unpack[Acting]) -> bool:
        """Give this node, and any later one of its name, nothing new until `undrain`. False: it drained already.

        Its jobs end there, or are handed over after `drain_timeout` seconds; no loss is counted. Raises InvalidJob.
        """
        return self._core.drain(node, True, **acting)

    @refuses_viewers
    def undrain(self, node: str, **acting: Unpack[Acting]) -> bool:
        """Give this node work again, and wake it where some waits. False: it did not drain."""
        return self._core.drain(node, False, **acting)

    @overload
    def act(self, verb: Verb, *, dry_run: Literal[False] = False, **wanted: Unpack[ActingOn]) -> Iterator[Progress]: ...
    @overload
    def act(self, verb: Verb, *, dry_run: Literal[True], **wanted: Unpack[ActingOn]) -> Plan: ...
    @refuses_viewers
    def act(self, verb: Verb, *, dry_run: bool = False, **wanted: Unpack[ActingOn]) -> Iterator[Progress] | Plan:
        """Act on all that a filter finds, in portions: it acts as you iterate over the progress.

        `cancel`, `retry` and `move` act on the jobs of a JobFilter. `release`, `pause`, `resume` and `limit` act on the
        lanes of a `key`: one, or those that are there now and begin so, where it ends in `*`. Another call does
        the rest; a release takes each lane from who holds it then. `How` has `to`, `priority` and `limit`. `dry_run`:
        give the Plan, and do nothing. Raises InvalidJob for a filter that names nothing.
        """
        from coordinator.lanes.bulk import on_filter

        bulk, acting = on_filter(self._looked_at, verb, wanted, self._unseen)
        return bulk.plan() if dry_run else bulk.run(acting)

    def refused(self, most: int = 100) -> list[RefusedRequest]:
        """Read the requests that the app's inboxes refused, the newest first. The broker keeps 1,000 of each kind.

        Raises SettingsError for a plain client, and StoreUnavailable where the broker does not answer.
        """
        return self._refused.all(most)

    def refused_counts(self) -> dict[str, int]:
        """Count the refused requests of each inbox that ever refused one, by queue."""
        return self._refused.counts()

    @refuses_viewers
    def requeue(self, request_id: str, edited: str | None = None, **acting: Unpack[Acting]) -> bool:
        """Put a refused request into its queue again; `edited`: this JSON in its place. False: it is there no more.

        Of several who act on it at once one does. Raises InvalidJob for what no inbox can read, or while another author
        acts on it.
        """
        return self._take_out("requeue", request_id, edited, act_of(**acting))

    @refuses_viewers
    def discard(self, request_id: str, **acting: Unpack[Acting]) -> bool:
        """Forget a refused request. False: it is there no more. Raises InvalidJob while another author acts on it."""
        return self._take_out("discard", request_id, None, act_of(**acting))

    def _take_out(self, act: str, request_id: str, edited: str | None, author: str) -> bool:
        """Note the act, which only one author may note, then do it: a repeated call does what a kill left undone."""
        from coordinator.jobs.trail import note_act
        from coordinator.warden.inbox.refused import content_of

        request = self._refused.find(request_id)
        if request is None:
            return False
        content = content_of(request, edited) if act == "requeue" else None
        about = (f"{request.queue}: {request.reason}", "" if edited is None else "edited")
        note_act(self._looked_at, act, "request", request_id, f"refused {request_id}", author, *about, seconds=60)
        return self._refused.take_out(request, content)

    def actions(
        self, most: int = 100, after: str = "", *, by: str | None = None, thing: str | None = None
    ) -> list[Action]:
        """Read what operators did, the newest first: who, when, what, why, and the state before and after.

        `after`: the id of the last action of the page before. `by`: of this author only. `thing`: such as `job 7f3`, or
        a kind alone: `lane`. Redis keeps the newest 10,000. Raises InvalidJob.
        """
        from coordinator.jobs.trail import actions

        return actions(self._looked_at, most, after, by, thing)

    @refuses_viewers
    def acted(
        self, act: str, kind: str, name: str, *, id: str, before: str = "", after: str = "", **acting: Unpack[Acting]
    ) -> bool:
        """Write an act of the app's own into the audit trail, such as ("approve", "member", its name).

        `id` names this one act: a repeated call within an hour writes nothing, and gives False. Raises InvalidJob.
        """
        from coordinator.jobs.trail import note_act

        return note_act(self._looked_at, act, kind, name, id, act_of(**acting), before, after)

    # What an app adds, and the end.

    def extend(self, extension: Extension) -> None:
        """Add an app's own commands, answers, findings, metrics and pages to the coordinator's. Raises InvalidJob."""
        if not isinstance(extension, Extension):
            raise InvalidJob(f"extend takes an Extension, not {shown(extension)}")
        self.extensions.append(extension)

    def warden_plugin(self, make: Callable[[str], WardenPlugin]) -> None:
        """Have every node's warden start `make(node)` beside it. A repeated call starts one more."""
        self._warden_plugins.append(make)

    def inbox(self, queue: str, model: type[M], handler: Callable[[M], None]) -> None:
        """Have every node's warden read requests from this queue of the broker: see `coordinator.warden.inbox`.

        The warden checks each by the pydantic `model` and calls `handler` with it, at least once. Raises SettingsError.
        """
        from coordinator.warden.inbox.inbox import inbox_maker

        self.warden_plugin(inbox_maker(self._bound, queue, model, handler, lambda: self.store))

    def schedule_source(self, fn: Source) -> Source:
        """Have every beat ask `fn()` for more entries of the schedule. A decorator: it gives `fn` back."""
        self._schedule_sources.append(fn)
        return fn

    def _check_open(self) -> None:
        """Raise ShuttingDown after `stop_submitting`."""
        if self._stopped_in == os.getpid() and not task_at_work() and not current_job():
            raise ShuttingDown("this process is shutting down: nothing is submitted any more")

    def stop_submitting(self) -> None:
        """Have `submit` raise ShuttingDown in this process from here, except for tasks at work in it.

        A worker that is told to end calls this by itself. A repeated call changes nothing.
        """
        self._stopped_in = os.getpid()

    def close(self) -> None:
        """Close this process's connections to Redis, as leaving a `with` does. The next call opens others."""
        if "store" in vars(self):
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The parts, each made at its first use.

    @cached_property
    def entries(self) -> Entries:
        from coordinator.scheduler.steering import Entries

        return Entries(lambda: self._looked_at, lambda: self._requests)

    @property
    def node(self) -> str:
        """The name of the worker in this process, or of the one that forked it; "" in beats and clients."""
        return self._node

    @cached_property
    def settings(self) -> Settings:
        from coordinator.broker import settings_of

        return settings_of(self.app, self._own_settings)

    @cached_property
    def store(self) -> Store:
        from coordinator.store.client import Store

        return Store(self.settings)

    @cached_property
    def _requests(self) -> RequestMaker:
        from coordinator.client.task_defaults import target_of
        from coordinator.jobs.request import RequestMaker

        return RequestMaker(
            self.settings, *(target_of(self.app, self._core, self._fair_by, waits) for waits in (False, True))
        )

    @cached_property
    def _hidden(self) -> Hidden:
        """What people do not see."""
        from coordinator.client.task_defaults import hidden_of

        return hidden_of(self.app, self.settings)

    @property
    def _unseen(self) -> Hidden | None:
        """What a search does not find."""
        return self._hidden if for_somebody() else None

    @property
    def _core(self) -> LaneClient:
        """The lanes in Redis; where the app calls its tasks eagerly, its jobs run at once."""
        return self._eager if self._is_eager else self._lanes

    @property
    def _is_eager(self) -> bool:
        return self.app is not None and bool(self.app.conf.task_always_eager)

    @property
    def _looked_at(self) -> Store:
        """The store, for reads and acts of people. Raises SettingsError in an eager app, which keeps nothing there."""
        return self._core.store

    @cached_property
    def _eager(self) -> EagerLanes:
        from coordinator.runner.eager import EagerLanes

        return EagerLanes(self._bound)

    @cached_property
    def _lanes(self) -> LaneClient:
        from coordinator.lanes.client import LaneClient

        return LaneClient(self.store)

    @cached_property
    def _locks(self) -> Locks:
        from coordinator.locks.locks import Locks

        return Locks(self.store, self._lanes, self._renewer)

    @cached_property
    def _sorters(self) -> Sorters:
        from coordinator.sorters.sorter import Sorters

        return Sorters(self._looked_at)

    @cached_property
    def _renewer(self) -> Renewer:
        from coordinator.locks.leases import Renewer

        return Renewer(self.store)

    @cached_property
    def _grabber(self) -> Grabber:
        from coordinator.grabs.grab import Grabber

        return Grabber(self._looked_at, self._renewer, self._lanes.holds, lambda: self.node, _is_in_task)

    @property
    def _refused(self) -> RefusedRequests:
        from coordinator.warden.inbox.refused import RefusedRequests

        queues = self._looked_at.read("SMEMBERS", self._looked_at.key("inboxes", self._bound.main or ""))
        return RefusedRequests(self._bound, sorted(queue.decode() for queue in queues))

    @cached_property
    def _results(self) -> Results:
        from coordinator.warden.errands.results import Results

        return Results(self.store, self._lanes, self._bound)

    @cached_property
    def _parked(self) -> Parked:
        from coordinator.warden.errands.parked import Parked

        return Parked(self._lanes, self._bound)

    @cached_property
    def _troubles(self) -> TroubleReports:
        from coordinator.warden.errands.trouble_reports import TroubleReports

        return TroubleReports(self.store, self._lanes, self._bound)

    @property
    def _bound(self) -> Celery:
        if self.app is None:
            raise SettingsError("this coordinator is a plain client: it has no Celery app")
        return self.app

    def _place(self) -> Place:
        from coordinator.runner.runner import Place

        assert self._board, "only a worker runs jobs"
        return Place(self.node, self._lanes, self._incarnation, self._board, self._one_each)

    def _queues_of(self, tasks: Iterable[str]) -> dict[str, str]:
        """The queue of each of these tasks that does not go to the app's default queue."""
        from coordinator.client.task_defaults import queues_of

        return queues_of(self._bound, tasks)

    def _install(self, app: Celery) -> None:
        import coordinator.timed_out  # noqa: F401  # Celery rebuilds an error from a type that is loaded
        from coordinator.broker import add_ours
        from coordinator.keyed_task.calls import KeyedTasks
        from coordinator.worker.binding import bind

        app.on_after_configure.connect(add_ours, weak=False)
        if app.configured:
            add_ours(app)
        bind(app)
        self._keyed_tasks = KeyedTasks(app, self)
        self._keyed_tasks.install()


def _is_app(app: object) -> bool:
    """A process that has not loaded Celery's app has none."""
    base = sys.modules.get("celery.app.base")
    return base is not None and isinstance(app, base.Celery)


def task_at_work() -> Task | None:
    """The task that this thread works on, or None. A process without Celery's has none."""
    state = sys.modules.get("celery._state")
    return state and state.get_current_task()


def _is_in_task() -> bool:
    """True inside a task that a worker runs."""
    task = task_at_work()
    return task is not None and not task.request.called_directly
