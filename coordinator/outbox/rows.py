"""The rows of an outbox: what is in the table, and what the relay does with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from coordinator.core.jobs.request import JobRequest
from coordinator.core.jobs.validation import check_keys

if TYPE_CHECKING:
    from coordinator.core.client.on_commit import AnySession

TABLE = "coordinator_outbox"
_NEEDED = {"class", "task", "spec", "limits"}  # fields of each job


class Row(NamedTuple):
    """`number`: grows with each row that is written, and is never used again. `request`: the job, as `text_of` writes
    it. `written`: seconds since the epoch, by the clock of the writer. `error`: why it was not submitted, "" if nothing
    stands in its way.
    """

    number: int
    job_id: str
    request: str
    written: float
    error: str


class Rows(Protocol):
    """The rows that one app has in a table. `place`: names the database and the table, for messages."""

    place: str

    def write(self, request: JobRequest, session: AnySession | None, committed: Callable[[], None]) -> None:
        """Add a row to the current transaction, and call `committed` after the commit."""

    def read(self, most: int) -> list[Row]:
        """Read the `most` rows with the lowest numbers, in one statement."""

    def delete(self, numbers: Sequence[int]) -> None: ...

    def note(self, numbers: Sequence[int], error: str) -> None:
        """Write down why these rows were not submitted."""

    def having(self, job_ids: Iterable[str]) -> set[str]:
        """Return those of these ids that have a row."""

    def of_job(self, job_id: str) -> Row | None: ...


def text_of(request: JobRequest) -> str:
    return json.dumps(request.step_args())


def request_of(text: str) -> JobRequest:
    """Return the request that `text_of` has written. Raises ValueError for any other text."""
    try:
        job_id, keys, when_busy, priority, not_before, room, *fields = json.loads(text)
        if not {*fields[::2]}.issuperset(_NEEDED) or len(fields) % 2:
            raise ValueError("it lacks fields of a job")
        lanes = check_keys(keys.split("\n")) if keys else ()
        request = JobRequest(job_id, lanes, when_busy, priority, not_before, room, tuple(fields))
        "\n".join(map(str, request.step_args())).encode()
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"the row is damaged: {error}") from error
    return request
