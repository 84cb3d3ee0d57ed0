"""The answer to a submit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from coordinator.errors import CoordinatorError
from coordinator.jobs.record import Job


class Host(Protocol):
    """The coordinator of a submission."""

    def job(self, job_id: str) -> Job: ...

    def wait(self, job_id: str, timeout: float | None = None) -> Job: ...

    def error_of(self, job: Job) -> BaseException: ...


@dataclass(frozen=True, slots=True)
class Submission:
    """The outcome of a submit. `accepted`: Redis keeps work under `job_id` (all outcomes but `skipped`).

    `outcome`: started (in front: no other job holds it up), queued, skipped, coalesced (`job_id` is an alias of the
    waiting job it melted into), duplicate, collected (by a sorter). `position`: 0 = in front, -1 = not in line (yet).
    A job in front that no living node can run yet is queued, too.
    """

    job_id: str
    outcome: str
    position: int
    _host: Host | None = field(default=None, repr=False, compare=False)

    @property
    def accepted(self) -> bool:
        return self.outcome != "skipped"

    def get(self, timeout: float | None = None) -> Any:
        """Wait until the job is over or held, as `wait` does, and give its result. Raises its error.

        That is the task's own error where this process has its type, else JobFailed.
        """
        job = self._asked.wait(self.job_id, timeout)
        if job.state == "succeeded":
            return job.result
        raise self._asked.error_of(job)

    @property
    def result(self) -> Any:
        """The job's result, or its error where it ended badly; None while it is not over."""
        job = self._asked.job(self.job_id)
        return self._asked.error_of(job) if job.over and job.state != "succeeded" else job.result

    @property
    def _asked(self) -> Host:
        if self._host is None:
            raise CoordinatorError(f"ask the coordinator for job {self.job_id}: wait(…) or job(…)")
        return self._host
