"""`Submission`, the object that a submit returns.

    submission = coordinator.submit("order/42", ship.s(42))
    submission.get(timeout=60)  # the task's result, or its error

The wait also ends when the job is held, which means that it failed and keeps its lanes until an operator decides:
`get` then raises the error of the job.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from coordinator.core.jobs.instances import State, Winner
from coordinator.core.jobs.record import Job
from coordinator.core.jobs.states import Answer
from coordinator.core.jobs.states import State as JobState
from coordinator.core.store.values import Json
from coordinator.errors import CoordinatorError, Locked


class JobReader(Protocol):
    """The methods of a Coordinator that a Submission calls."""

    def job(self, job_id: str) -> Job: ...

    def wait(self, job_id: str, timeout: float | None = None) -> Job: ...

    def _error_of(self, job: Job) -> BaseException: ...


class GrabOutcome(NamedTuple):
    """The outcome of a submit that names an `instance`, a piece of work that only one job or process gets.

    `won`: the submitted job got the instance. `winner`: the job or process that has the instance. `state`: of the
    instance: running, complete or failed; complete or incomplete where another one won. `result`: of the work, if the
    instance is complete.
    """

    won: bool
    state: State
    winner: Winner | None
    result: Json


@dataclass(frozen=True, slots=True)
class Submission:
    """The outcome of a submit, and the handle by which the caller waits for the result of the job.

    `outcome`: `started` (the job is in front of its lanes, and a living node can run it), `queued`, `skipped` (a lane
    was busy), `coalesced` (into an equal job that waits: `id` is an alias of that job), `duplicate` (a job with this id
    was there), `collected` (by a sorter), or `lost` (another job or process won the instance: `id` is that of the
    winner). `position`: the place of the job in its line; 0 = in front, -1 = not in line, or not yet. `grab`: the state
    of the instance; None where the submit named no `instance`. `of`: the id of the job for which the submit was
    skipped, or into which it coalesced; "" where there is none.
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
        """True where Redis now keeps a job, an alias or an order for the submit: all but `skipped` and `lost`."""
        return self.outcome not in ("skipped", "lost")

    def get(self, timeout: float | None = None) -> Any:
        """Wait until the job is over or held, at most `timeout` seconds (None: without end), and return its result.

        Where the job failed, raises the exception of the task if this process can import the class of the exception,
        else JobFailed. A skipped submit gives the result of the job for which it was skipped; it raises Locked if it
        was skipped because the lane was paused or had the limit 0.
        """
        job = self._reader.wait(self._result_id, timeout)
        if job.state == "succeeded":
            return job.result
        raise self._reader._error_of(job)

    @property
    def state(self) -> JobState:
        """The state of the job, read from Redis at each access."""
        return self._reader.job(self._result_id).state

    def ready(self) -> bool:
        """True if the job is over or held, so that `get` returns or raises at once."""
        return self._reader.job(self._result_id).waited_for

    @property
    def _result_id(self) -> str:
        """The id of the job whose result `get` returns: for a skipped submit, the job for which it was skipped. Raises
        Locked where a submit was skipped for no job.
        """
        if self.outcome != "skipped":
            return self.id
        if not self.of:
            raise Locked(self._key, None)
        return self.of

    @property
    def _reader(self) -> JobReader:
        if self._host is None:
            raise CoordinatorError(
                f"ask the coordinator for job {self.id}: wait(…) or job(…); in asyncio, await jobs.get({self.id!r})"
            )
        return self._host
