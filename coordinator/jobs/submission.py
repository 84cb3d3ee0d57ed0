"""The answer to a submit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from coordinator.errors import CoordinatorError, Locked
from coordinator.jobs.instances import State, Winner
from coordinator.jobs.record import Job
from coordinator.jobs.states import Answer
from coordinator.jobs.states import State as JobState
from coordinator.store.values import Json


class JobReader(Protocol):
    """The methods of a Coordinator that a Submission calls."""

    def job(self, job_id: str) -> Job: ...

    def wait(self, job_id: str, timeout: float | None = None) -> Job: ...

    def _error_of(self, job: Job) -> BaseException: ...


class GrabOutcome(NamedTuple):
    """How a submit with an instance went. `state`: running, complete or failed; a loser's is complete or incomplete.

    `result`: of an instance that is complete.
    """

    won: bool
    state: State
    winner: Winner | None
    result: Json


@dataclass(frozen=True, slots=True)
class Submission:
    """The outcome of a submit. `accepted`: Redis keeps work of its own for it (all outcomes but `skipped` and `lost`).

    `outcome`: started (in front, and a living node can run it), queued, skipped, coalesced (`id` is an alias of the
    waiting job it coalesced into), duplicate, collected (by a sorter), lost (`id` is that of the winner of the
    instance). `position`: 0 = in front, -1 = not in line (yet). `of`: the job that it was skipped for or coalesced
    into. `grab`: of a submit with an instance.
    """

    id: str
    outcome: Answer
    position: int
    grab: GrabOutcome | None = None
    of: str = field(default="", compare=False)
    _key: str = field(default="", repr=False, compare=False)
    _host: JobReader | None = field(default=None, repr=False, compare=False)

    @property
    def accepted(self) -> bool:
        return self.outcome not in ("skipped", "lost")

    def get(self, timeout: float | None = None) -> Any:
        """Wait until the job is over or held, as `wait` does, and return its result. Raises its error.

        That is the task's own error where this process has its type, else JobFailed. A skipped submission has the
        result of the job that it was skipped for; it raises Locked where no job, but a pause or a limit of 0 was in the
        way.
        """
        job = self._reader.wait(self._result_id, timeout)
        if job.state == "succeeded":
            return job.result
        raise self._reader._error_of(job)

    @property
    def state(self) -> JobState:
        """The job's state now."""
        return self._reader.job(self._result_id).state

    def ready(self) -> bool:
        """True where `get` would not wait: the job is over or held."""
        return self._reader.job(self._result_id).waited_for

    @property
    def _result_id(self) -> str:
        """The id of the job whose result is the submission's."""
        if self.outcome != "skipped":
            return self.id
        if not self.of:
            raise Locked(self._key, None)
        return self.of

    @property
    def _reader(self) -> JobReader:
        if self._host is None:
            raise CoordinatorError(f"ask the coordinator for job {self.id}: wait(…) or job(…)")
        return self._host
