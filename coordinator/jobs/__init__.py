"""A job: its request, its record, its steps. Nothing here runs it."""

from coordinator.jobs.current import CurrentJob, current_job
from coordinator.jobs.options import Backoff, Options
from coordinator.jobs.record import Job
from coordinator.jobs.submission import Submission

__all__ = ["Backoff", "CurrentJob", "Job", "Options", "Submission", "current_job"]
