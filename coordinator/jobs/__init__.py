"""A job: its request, its record, its steps. Nothing here runs it."""

from typing import TYPE_CHECKING

from coordinator.later import handing_on

if TYPE_CHECKING:
    from coordinator.jobs.current import CurrentJob, current_job
    from coordinator.jobs.options import Backoff, Options
    from coordinator.jobs.record import Job
    from coordinator.jobs.submission import Submission
else:
    __getattr__, __dir__ = handing_on(
        __name__,
        {
            "current": ("CurrentJob", "current_job"),
            "options": ("Backoff", "Options"),
            "record": ("Job",),
            "submission": ("Submission",),
        },
    )

__all__ = ["Backoff", "CurrentJob", "Job", "Options", "Submission", "current_job"]
