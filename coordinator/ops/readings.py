"""The readings of an installation: functions that read jobs, lanes, nodes and more, for code, commands and pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Unpack

from coordinator.core.author import for_somebody
from coordinator.core.jobs.validation import checks_arguments, id_of, one_of, shown
from coordinator.core.verbs import AFTER, EVENT, LANE, MOST, NOTHING, QUOTA, Option, reading
from coordinator.errors import InvalidJob
from coordinator.ops.verbs.jobs import JobVerbs

if TYPE_CHECKING:
    from coordinator.core.finding import Finding
    from coordinator.core.fleet.nodes import Node
    from coordinator.core.jobs.instances import GrabRecord
    from coordinator.core.jobs.record import Job
    from coordinator.core.jobs.states import LaneState
    from coordinator.core.jobs.submission import Submission
    from coordinator.core.lanes.view import Lane
    from coordinator.core.store.client import Store
    from coordinator.ops.diagnosis.cause import Why
    from coordinator.ops.diagnosis.lost import LostNode
    from coordinator.ops.diagnosis.rates import Rates
    from coordinator.ops.diagnosis.redis_status import RedisStatus
    from coordinator.ops.diagnosis.summary import Summary
    from coordinator.ops.extension import Extension
    from coordinator.ops.search.events import Events, EventStatus
    from coordinator.ops.search.filter import JobFilter
    from coordinator.ops.search.groups import By, Groups
    from coordinator.ops.search.jobs import Found
    from coordinator.ops.search.lanes import HeldLock, Lines
    from coordinator.ops.search.quotas import Quotas, QuotaStatus
    from coordinator.ops.search.tenants import Tenants, TenantSort
    from coordinator.ops.search.when import When
    from coordinator.ops.verbs.planner import Planner
    from coordinator.ops.verbs.trail import Action
    from coordinator.scheduler.steering import Entries
    from coordinator.sorters.sorter import Sorters, SorterStatus

PAGE = replace(MOST, default=50)
MANY = replace(MOST, default=1000)
FILTER = (
    Option("state", "Only jobs in this state; bad: that ended by a fault, not by a person.", several=True),
    Option("reason", "Only jobs that wait for this, such as waiting.slot: `why` without a name counts them."),
    Option("task", "Only jobs of this task."),
    Option("key", "Only jobs of this lane; K*: of all lanes whose keys begin with K."),
    Option(
        "since",
        "Only jobs that ended since then, or are not over and were submitted since: 90s, 1h, 2d, last hour, 10:00, "
        "today, yesterday, newest node, or an instant, in UTC.",
    ),
    Option("until", "Only jobs that ended until then, or are not over and were submitted until then; as since."),
    Option("node", "Only jobs that ran on this node last."),
    Option("error", "Only jobs whose error has this text in its type or message; with a colon: of just this type."),
    Option("text", "Only jobs that have this text in an argument."),
    Option("ids", "Only these jobs.", flag="--id", metavar="ID", several=True),
    Option("without", "None of these jobs.", flag="--except", metavar="ID", several=True),
)
GROUPS = Option(
    "by", "What the jobs of a group share.", default="error",
    choices=dict.fromkeys(("state", "error", "task", "tenant"), ""),
)  # fmt: skip
TIME = Option("seconds", "Count for so long at most.", kind=float, default=0.5, least=0.0, most=4.0)
EXPLAINED = (
    Option("job", "A job: why it waits, or where it is."),
    Option("key", "A lane: who holds it, and who waits for what.", metavar="KEY"),
    Option("node", "A node: why it does nothing.", metavar="NODE"),
    Option("entry", "An entry of the schedule: why it does not run.", metavar="NAME"),
)
PREFIX = Option("prefix", "Only lanes whose keys begin with this.", default="")
QUOTAS = Option("prefix", "Only quotas whose names begin with this.", default="")
TENANT_SORTS = {
    "waiting": "most waiting", "running": "most running", "failed": "most failed", "slots": "largest share of slots",
    "lanes": "most lanes", "weight": "greatest weight", "prefix": "by prefix",
}  # fmt: skip
TENANTS = (
    Option("prefix", "Only what begins with this, by the next segment of the keys.", default=""),
    Option("sort", "A number, the greatest first, or the prefix.", "Order", default="waiting", choices=TENANT_SORTS),
    replace(MOST, default=50),
    Option("seconds", "Look for about so many seconds.", kind=float, default=0.5, least=0, most=10),
)
EVENTS = Option("prefix", "Only events whose names begin with this.", default="")
LANE_STATE = Option("state", "Only lanes with a first job in this state.")
BY = Option("by", "Only acts of this author.", metavar="NAME")
THING = Option("thing", "Only acts on this, such as 'job 7f3', or on a kind: lane.", metavar="THING")
ACTED_SINCE = Option("since", "Only acts since then: 90s, 1h, 10:00, today, newest node, or an instant, in UTC.")
ACTED_UNTIL = Option("until", "Only acts until then; as since.")


@checks_arguments
class Readings(JobVerbs):
    # Label that jobs need and that nodes may lose -> function that says which nodes lost the label, and why.
    needed_labels: dict[str, Callable[[Store], list[str]]]
    extensions: list[Extension]

    @cached_property
    def entries(self) -> Entries:
        """The entries of the schedule, as an object whose methods read, change and run them."""
        from coordinator.scheduler.steering import Entries

        return Entries(lambda: self._core.store, lambda: self._requests)

    @cached_property
    def plan(self) -> Planner:
        """The planner of verbs: `coordinator.plan.cancel(id)` returns what `cancel` would do, and changes nothing."""
        from coordinator.ops.verbs.planner import Planner

        return Planner(self)

    @reading(NOTHING, *EXPLAINED)
    def why(
        self, /, job: str | Submission | None = None, *, key: str | None = None, node: str | None = None,
        entry: str | None = None, **other: str,
    ) -> Why:  # fmt: skip
        """Say why a job is where it is: what is wrong first, then each cause in the way, with a stable code.

        With `key`: why the jobs of a lane wait; with `node`: why the node does nothing; with `entry`: why the entry of
        the schedule does not run. An extension adds kinds of its own (`member="…"`). Raises InvalidJob unless exactly
        one thing is named, and UnknownJob or UnknownEntry where there is none of that name.
        """
        from coordinator.ops.diagnosis.why import why_of

        wanted = {"job": None if job is None else id_of(job), "key": key, "node": node, "entry": entry, **other}
        kinds = {kind: explain for extension in self.extensions for kind, explain in extension.why.items()}
        with self._looking_in_outboxes():
            return why_of(self._core, wanted, self.needed_labels, lambda: self.entries, kinds)

    @reading()
    def why_summary(self) -> Summary:
        """Count all jobs that wait, by the code of their cause, with the longest wait of each and an example.

        It reads a bounded number of jobs and lanes; `Summary.complete` says whether these were all.
        """
        from coordinator.ops.diagnosis.snapshot import Snapshot
        from coordinator.ops.diagnosis.summary import why_summary

        return why_summary(Snapshot(self._core, self.needed_labels))

    @reading(blocks=True)
    def doctor(self) -> list[Finding]:
        """Look for faults and dangers in Redis, the nodes, keys without an owner, the extensions and the app; errors
        first, and at the end those that operators have acknowledged (`ack`). A Redis that does not answer is a finding,
        too. Reads a bounded number of keys. Raises SettingsError.
        """
        from coordinator.core.finding import sorted_findings
        from coordinator.ops.diagnosis.doctor import found
        from coordinator.ops.verbs.acknowledged import acknowledged

        more = self._findings_of_extensions()
        every = [*found(self._core.store, self.needed_labels, more), *self._findings_of_app()]
        return acknowledged(self._core.store, sorted_findings(every))

    def _findings(self) -> list[Finding]:
        """Find faults of Redis, of the nodes and of the keys in Redis, and add the findings of the extensions."""
        from coordinator.ops.diagnosis.doctor import examine

        return examine(self._core.store, self.needed_labels, self._findings_of_extensions())

    def _findings_of_extensions(self) -> Iterator[Finding]:
        return (finding for one in self.extensions if one.findings for finding in one.findings())

    def _findings_of_app(self) -> Iterator[Finding]:
        """Find faults of the app; nothing for a coordinator without one."""
        if self.app is not None:
            from coordinator.ops.app_check import of_app

            yield from of_app(self.app, imports=not for_somebody())

    @reading()
    def redis_status(self) -> RedisStatus:
        """Read how fast Redis answers, and how much of its memory is in use. Takes three round trips."""
        from coordinator.ops.diagnosis.redis_status import redis_status

        return redis_status(self._core.store)

    @reading(NOTHING, *FILTER, AFTER, PAGE)
    def jobs(self, *, most: int = 50, after: str = "", **wanted: Unpack[JobFilter]) -> Found:
        """Find jobs: those in no line yet, those in line by lane, then those that are over, the latest first.

        `wanted`: the filters, which `JobFilter` explains. `after`: `Found.after` of the previous page. A job whose
        state changes between two pages may be on both; none is left out. Task, node, error and text are searched in the
        first 10,000 jobs behind `after` that the other filters leave. Raises InvalidJob.
        """
        from coordinator.ops.search.jobs import search

        return search(self._core.store, most, after, self._unseen, **wanted)

    @reading(NOTHING, GROUPS, *FILTER, TIME)
    def job_groups(self, by: By = "error", *, seconds: float = 0.5, **wanted: Unpack[JobFilter]) -> Groups:
        """Count the jobs that a filter finds, by their `state`, `error` (its type), `task` or `tenant` (the first part
        of the key).

        It counts for `seconds` at most; then `Groups.complete` is False, and each number is "at least". The jobs of
        each state, without another filter, are exact at any number. Raises InvalidJob.
        """
        from coordinator.ops.search.groups import grouped

        return grouped(self._core.store, by, seconds, self._unseen, **wanted)

    def _living(self) -> list[str]:
        """Return the ids of all jobs that are not over; a worker needs them for `revoke_by_stamped_headers`."""
        from coordinator.ops.search.jobs import living

        return list(dict.fromkeys(living(self._core.store)))

    @reading()
    def counts(self) -> dict[str, int]:
        """Count the jobs by state and by outcome, and all jobs ever `created`; also `retries`, `losses`, and `faults`
        (rollbacks that failed).
        """
        return self._core.counts()

    @reading()
    def rates(self) -> Rates:
        """Read how many jobs were submitted, ended and failed in the last hour, in the last day, and in each minute of
        that day.
        """
        from coordinator.ops.diagnosis.rates import rates_of

        return rates_of(self._core.store)

    @reading(LANE)
    def lane(self, key: str, most: int = 100, runs: int = 10) -> Lane:
        """Read a lane: its holder, its first `most` jobs, its pause, and its last `runs`, the latest first.

        The state of a lane without jobs, also of one that was never used, is `empty`.
        """
        from coordinator.core.jobs.validation import check_key, count
        from coordinator.ops.search.lanes import whole

        return whole(self._core.store, check_key(key), most, count("runs", runs))

    @reading(NOTHING, PREFIX, LANE_STATE, AFTER, MOST)
    def lanes(self, prefix: str = "", state: LaneState | None = None, most: int = 1000, after: str = "") -> list[Lane]:
        """Read a page of the lanes whose keys begin with `prefix`, by key; `jobs` has only the first job of each.

        A lane is listed while it has jobs, or is paused. `state`: only lanes whose first job is in this state. `after`:
        the last key of the previous page.
        """
        from coordinator.core.lanes.view import STATES
        from coordinator.ops.search.lanes import lanes

        if state is not None:
            one_of("state", state, STATES)
        return lanes(self._core.store, prefix, state, most, after)

    def line(self, lane: Lane) -> list[Job]:
        """Read the records of the jobs in `lane.jobs`, in that order. Jobs whose records are gone are left out."""
        from coordinator.core.jobs.record import read_many
        from coordinator.core.lanes.view import Lane

        if not isinstance(lane, Lane):
            raise InvalidJob(f"line takes the Lane that lane() gives, not {shown(lane)}")
        return list(read_many(self._core.store, lane.jobs))

    @reading(NOTHING, MANY)
    def locks(self, most: int = 100) -> list[HeldLock]:
        """Read the lanes that plain code holds with `coordinator.lock`: key and holder, by the end of their leases."""
        from coordinator.ops.search.lanes import locks

        return locks(self._core.store, most)

    @reading(NOTHING, QUOTAS, AFTER, MOST)
    def quotas(self, prefix: str = "", most: int = 100, after: str = "") -> Quotas:
        """Read a page of the quotas that are declared or in use and whose names begin with `prefix`, by name; and the
        defaults of names.

        `after`: `Quotas.after` of the previous page.
        """
        from coordinator.core.jobs.validation import count
        from coordinator.ops.search.quotas import Quotas

        found, following = self._quotas.page(prefix, count("most", most, 1), after)
        return Quotas(tuple(found), tuple(self._quotas.defaults()), following)

    @reading(QUOTA, MOST)
    def quota_status(self, name: str, most: int = 100) -> QuotaStatus:
        """Read a quota: its units, its rate, its cool-down, at most `most` of the jobs that use it, and as many that
        wait for it.

        Raises UnknownQuota if nobody declared it and nothing uses it.
        """
        from coordinator.core.jobs.validation import count
        from coordinator.ops.search.quotas import status_of

        return status_of(self._core.store, name, count("most", most, 1))

    @reading(NOTHING, EVENTS, AFTER, MOST)
    def events(self, prefix: str = "", most: int = 100, after: str = "") -> Events:
        """Read a page of the events whose names begin with `prefix`: those for which jobs wait, by name, and then those
        that are set, the latest first.

        `after`: `Events.after` of the previous page. An event that is set between two pages may be on both. A page
        reads at most 10,000 names, and may have fewer events than `most`. Raises InvalidJob.
        """
        from coordinator.core.jobs.validation import count
        from coordinator.ops.search.events import page

        return page(self._core.store, prefix, count("most", most, 1), after)

    @reading(EVENT, MOST)
    def event_status(self, name: str, most: int = 100) -> EventStatus:
        """Read an event: its value, who set it and when, and at most `most` of the jobs that wait for it."""
        from coordinator.core.events.event import check_event
        from coordinator.core.jobs.validation import count
        from coordinator.ops.search.events import status_of

        return status_of(self._core.store, check_event(name), count("most", most, 1))

    @reading()
    def weights(self) -> dict[str, float]:
        """Read the weights of the groups of keys whose weight is not 1, by group."""
        return self._quotas.weights()

    @reading(NOTHING, *TENANTS)
    def tenants(
        self, prefix: str = "", sort: TenantSort = "waiting", most: int = 50, seconds: float | None = 0.5
    ) -> Tenants:
        """Count what waits, runs and failed below each prefix of keys: the `most` largest, by the segment behind
        `prefix`, in the order of `sort`.

        Segments end at a `/`: `""` has a row for all keys that begin with `acme/`, and `"acme/"` the rows below. The
        jobs without a key have one of their own. `seconds`: about how long it looks, None: until it has seen all;
        `Tenants.complete` says whether it has. Raises InvalidJob.
        """
        from coordinator.core.jobs.validation import count, span, stored_lane
        from coordinator.ops.search.tenants import look

        one_of("sort", sort, [*TENANT_SORTS])
        if seconds is not None:
            span("seconds", seconds)
        return look(self._core.store, stored_lane(prefix.removesuffix("*")), sort, count("most", most, 1), seconds)

    @reading()
    def contended(self, most: int = 5) -> Lines:
        """Read the `most` lanes with the longest lines, the longest first. If more than 10,000 lanes have a line, only
        10,000 of them, chosen at random, are compared.
        """
        from coordinator.ops.search.lanes import contended

        return contended(self._core.store, most)

    @reading()
    def nodes(self) -> list[Node]:
        """Read the nodes that are alive, sorted by name: the queues, tasks, slots, running jobs and load of each."""
        from coordinator.core.fleet.nodes import Nodes

        return Nodes(self._core.store).living()

    @reading()
    def lost_nodes(self) -> list[LostNode]:
        """Read the nodes that were killed or cut off within the last hour, the newest first, and which nodes have their
        jobs now.
        """
        from coordinator.ops.diagnosis.lost import lost_nodes
        from coordinator.ops.diagnosis.snapshot import Snapshot

        return lost_nodes(Snapshot(self._core))

    @reading(NOTHING, Option("key", "Only instances of this key."), AFTER, MOST)
    def grabs(self, key: str | None = None, most: int = 100, after: str = "") -> list[GrabRecord]:
        """Read a page of the grabbed instances of `key`, or of all keys: sorted by key, the latest of each key first.

        `after`: the `cursor` of the last instance on the previous page. Raises InvalidJob where Redis no longer has
        that instance.
        """
        return self._grabber.all(key, most, after)

    @reading(NOTHING, BY, THING, ACTED_SINCE, ACTED_UNTIL, AFTER, MOST)
    def actions(
        self,
        most: int = 100,
        after: str = "",
        *,
        by: str | None = None,
        thing: str | None = None,
        since: When | None = None,
        until: When | None = None,
    ) -> list[Action]:
        """Read what operators did, the newest first: who, when, what, why, and the state before and after.

        `after`: the id of the last action on the previous page. `by`: only acts of this author. `thing`: only acts on
        this thing (`job 7f3`), or on all things of a kind (`lane`). `since`, `until`: when, as a filter of `jobs`.
        Redis keeps the newest 10,000. Raises InvalidJob.
        """
        from coordinator.ops.search.when import ms_of
        from coordinator.ops.verbs.trail import actions

        store = self._core.store
        bounds = ms_of(store, "since", since), ms_of(store, "until", until)
        return actions(store, most, after, by, thing, *bounds)

    @reading()
    def sorters(self) -> list[SorterStatus]:
        """Read the sorters that hold orders, by name: how many orders each holds, since when, and until when."""
        return self._sorters.all()

    @cached_property
    def _sorters(self) -> Sorters:
        from coordinator.sorters.sorter import Sorters

        return Sorters(self._core.store)
