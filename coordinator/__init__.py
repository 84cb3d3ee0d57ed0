"""Keyed jobs for Celery: name what a job works on, and one job at a time works on it, in order.

    app = Celery("shop", broker="redis://localhost:6379/1")
    coordinator = Coordinator(app)
    coordinator.submit("order/42", ship.s(42))

help(coordinator.NAME) tells more of each name, and docs/api.md of all.

The door
    Coordinator      keyed jobs for a Celery app; without an app, a plain client of a Redis
    current_job      the job that the calling task is: its CurrentJob, or None
    Settings         the settings of a coordinator: names, values, sources

Options
    Options          those of submit, name by name; OrderOptions: those of a sorter's orders
    Coordinate       the option `coordinate` of a keyed task
    Backoff          growing delays between attempts, for retry_delay
    Entry            an entry of the schedule

Answers
    Submission       to a submit: the job's id, the outcome, get() and result
    Job              a job's record at one moment
    CurrentJob       a task's view of its job: key, fence, attempt, check(), progress()
    Lane, Node       a lane, and a node that lives, at one moment
    Lease            a lock that is held, with its fence
    Grab             an instance that this process won or lost; Winner: whoever won it
    Grabbed          an instance as Redis keeps it
    Sorter           holds orders and sorts them; Sorting: a sorter that holds some
    Scheduled        an entry as beats know it; Happening: an instant of its history

Errors, each of them a CoordinatorError
    at a submit      InvalidJob, LaneFull, DuplicateOrder, ShuttingDown
    Redis            StoreUnavailable, StoreRefused
    unknown names    UnknownJob, UnknownEntry
    locks            Locked, LeaseLost, WouldDeadlock
    waiting          WaitTimeout, JobFailed
    raised by tasks  NoRetry, Conflict
    documents        Changed, NotInReplicaSet, StaleFence, UpdatePending
    others           SettingsError, TimedOut
"""

from typing import TYPE_CHECKING

from coordinator.later import handing_on

if TYPE_CHECKING:
    from coordinator.public import *  # noqa: F403
else:
    # No `__all__`: with one, help(coordinator) would tell all of each class, on thousands of lines.
    __getattr__, __dir__ = handing_on(
        __name__,
        {
            "coordinator": ("Coordinator",),
            "errors": (
                "Changed", "Conflict", "CoordinatorError", "DuplicateOrder", "InvalidJob", "JobFailed", "LaneFull",
                "LeaseLost", "Locked", "NoRetry", "NotInReplicaSet", "SettingsError", "ShuttingDown", "StaleFence",
                "StoreRefused", "StoreUnavailable", "TimedOut", "UnknownEntry", "UnknownJob", "UpdatePending",
                "WaitTimeout", "WouldDeadlock",
            ),
            "fleet.nodes": ("Node",),
            "jobs.current": ("CurrentJob", "current_job"),
            "jobs.instances": ("Grabbed", "Winner"),
            "jobs.options": ("Backoff", "Coordinate", "Options", "OrderOptions"),
            "jobs.record": ("Job",),
            "jobs.submission": ("Submission",),
            "lanes.grab": ("Grab",),
            "lanes.lane": ("Lane",),
            "lanes.leases": ("Lease",),
            "lanes.sorter": ("Sorter", "Sorting"),
            "scheduler.entries": ("Entry",),
            "scheduler.history": ("Happening",),
            "scheduler.timetable": ("Scheduled",),
            "settings": ("Settings",),
        },
    )  # fmt: skip
