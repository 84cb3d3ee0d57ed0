"""The public names of the library as type checkers see them; `coordinator` hands them on."""

from coordinator.coordinator import Coordinator
from coordinator.errors import (
    Changed,
    Conflict,
    CoordinatorError,
    DuplicateOrder,
    InvalidJob,
    JobFailed,
    LaneFull,
    LeaseLost,
    Locked,
    NoRetry,
    NotInReplicaSet,
    SettingsError,
    ShuttingDown,
    StaleFence,
    StoreRefused,
    StoreUnavailable,
    TimedOut,
    UnknownEntry,
    UnknownJob,
    UpdatePending,
    WaitTimeout,
    WouldDeadlock,
)
from coordinator.fleet.nodes import Node
from coordinator.jobs.current import CurrentJob, current_job
from coordinator.jobs.instances import Grabbed, Winner
from coordinator.jobs.options import Backoff, Coordinate, Options, OrderOptions
from coordinator.jobs.record import Job
from coordinator.jobs.submission import Submission
from coordinator.lanes.grab import Grab
from coordinator.lanes.lane import Lane
from coordinator.lanes.leases import Lease
from coordinator.lanes.sorter import Sorter, Sorting
from coordinator.scheduler.entries import Entry
from coordinator.scheduler.history import Happening
from coordinator.scheduler.timetable import Scheduled
from coordinator.settings import Settings

__all__ = [
    "Backoff",
    "Changed",
    "Conflict",
    "Coordinate",
    "Coordinator",
    "CoordinatorError",
    "CurrentJob",
    "DuplicateOrder",
    "Entry",
    "Grab",
    "Grabbed",
    "Happening",
    "InvalidJob",
    "Job",
    "JobFailed",
    "Lane",
    "LaneFull",
    "Lease",
    "LeaseLost",
    "Locked",
    "NoRetry",
    "Node",
    "NotInReplicaSet",
    "Options",
    "OrderOptions",
    "Scheduled",
    "Settings",
    "SettingsError",
    "ShuttingDown",
    "Sorter",
    "Sorting",
    "StaleFence",
    "StoreRefused",
    "StoreUnavailable",
    "Submission",
    "TimedOut",
    "UnknownEntry",
    "UnknownJob",
    "UpdatePending",
    "WaitTimeout",
    "Winner",
    "WouldDeadlock",
    "current_job",
]
