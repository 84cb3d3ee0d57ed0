"""Keyed job coordination for Celery: name what a job works on, and one job at a time works on it, in order."""

from coordinator.current import CurrentJob, current_job
from coordinator.drafts import Backoff
from coordinator.errors import (
    Changed,
    Conflict,
    CoordinatorError,
    DuplicateOrder,
    InvalidJob,
    LaneFull,
    LeaseLost,
    Locked,
    NoRetry,
    SettingsError,
    ShuttingDown,
    StaleFence,
    StoreRefused,
    StoreUnavailable,
    TimedOut,
    UnknownJob,
    UpdatePending,
    WaitTimeout,
    WouldDeadlock,
)
from coordinator.extension import Coordinator
from coordinator.jobs import Job, Submission
from coordinator.line import Lane
from coordinator.locks import Lease
from coordinator.nodes import Node
from coordinator.settings import Settings
from coordinator.sorter import Sorter, Sorting

__all__ = [
    "Backoff",
    "Changed",
    "Conflict",
    "Coordinator",
    "CoordinatorError",
    "CurrentJob",
    "DuplicateOrder",
    "InvalidJob",
    "Job",
    "Lane",
    "LaneFull",
    "Lease",
    "LeaseLost",
    "Locked",
    "NoRetry",
    "Node",
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
    "UnknownJob",
    "UpdatePending",
    "WaitTimeout",
    "WouldDeadlock",
    "current_job",
]
