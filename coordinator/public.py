"""The public names of the library as type checkers see them; `coordinator` hands them on."""

from coordinator.author import Author
from coordinator.client.coordinator import Coordinator
from coordinator.diagnosis.cause import Cause, Why
from coordinator.diagnosis.finding import Finding
from coordinator.errors import (
    Conflict,
    CoordinatorError,
    DuplicateOrder,
    Forbidden,
    InvalidJob,
    JobFailed,
    LaneFull,
    LeaseLost,
    Locked,
    NoRetry,
    SettingsError,
    ShuttingDown,
    StoreRefused,
    StoreUnavailable,
    UnknownEntry,
    UnknownJob,
    WaitTimeout,
    WouldDeadlock,
)
from coordinator.extension import Extension
from coordinator.fleet.nodes import Node
from coordinator.grabs.grab import Grab
from coordinator.jobs.current import CurrentJob, current_job
from coordinator.jobs.instances import GrabRecord, Winner
from coordinator.jobs.options import Backoff, KeyedTaskOptions, SorterOptions, SubmitOptions
from coordinator.jobs.record import Job
from coordinator.jobs.submission import Submission
from coordinator.jobs.trail import Action
from coordinator.lanes.bulk import Progress
from coordinator.lanes.plan import Hit, Plan
from coordinator.lanes.view import Lane
from coordinator.locks.leases import Lease
from coordinator.scheduler.entries import Entry
from coordinator.scheduler.history import EntryEvent
from coordinator.scheduler.timetable import EntryStatus
from coordinator.settings import Settings
from coordinator.sorters.sorter import Sorter, SorterStatus
from coordinator.timed_out import TimedOut
from coordinator.trouble import Trouble, trouble_seen
from coordinator.warden.inbox.refused import RefusedRequest

__all__ = [
    "Action",
    "Author",
    "Backoff",
    "Cause",
    "Conflict",
    "Coordinator",
    "CoordinatorError",
    "CurrentJob",
    "DuplicateOrder",
    "Entry",
    "EntryEvent",
    "EntryStatus",
    "Extension",
    "Finding",
    "Forbidden",
    "Grab",
    "GrabRecord",
    "Hit",
    "InvalidJob",
    "Job",
    "JobFailed",
    "KeyedTaskOptions",
    "Lane",
    "LaneFull",
    "Lease",
    "LeaseLost",
    "Locked",
    "NoRetry",
    "Node",
    "Plan",
    "Progress",
    "RefusedRequest",
    "Settings",
    "SettingsError",
    "ShuttingDown",
    "Sorter",
    "SorterOptions",
    "SorterStatus",
    "StoreRefused",
    "StoreUnavailable",
    "Submission",
    "SubmitOptions",
    "TimedOut",
    "Trouble",
    "UnknownEntry",
    "UnknownJob",
    "WaitTimeout",
    "Why",
    "Winner",
    "WouldDeadlock",
    "current_job",
    "trouble_seen",
]
