"""Every error that the coordinator raises, as one tree.

CoordinatorError
├── SettingsError         a setting is unknown or out of range
├── InvalidJob            a submit that can never work; nothing was written
├── LaneFull              a submit with `max_waiting`, and so many wait; nothing was written
├── DuplicateOrder        a sorter's order whose id another one has
├── StoreUnavailable      Redis did not answer in time: unknown whether it was done
├── StoreRefused          Redis answered that it will not (out of memory, read-only)
├── UnknownJob            no record under this id (never was, or its retention is over)
├── Locked                a lock could not be had within `wait`
├── LeaseLost             somebody else was given what we held, or may have been
├── NoRetry               raised by a task: no further attempt
├── Conflict              raised by a task: an optimistic conflict; tried again, not counted
├── StaleFence            a write with a smaller fence than one that was seen
├── Changed               a write upon what is no longer so (a Conflict)
├── UpdatePending         an update of a document that is not committed in time; it goes on
├── WouldDeadlock         a sub-result that waits in a lane which its own job holds
├── ShuttingDown          a submit after shutdown has begun in this process
├── WaitTimeout           the job was not over in time; it goes on
└── TimedOut              a job's attempt went past its `time_limit`
"""

from __future__ import annotations


class CoordinatorError(Exception):
    """The root: catch this to catch everything that is ours."""


class SettingsError(CoordinatorError, ValueError):
    """Raised while settings are read: an unknown name, or a value that does not fit."""


class InvalidJob(CoordinatorError, ValueError):
    """Raised by `submit` before anything is written; the text names the part that is wrong and the way out."""


class DuplicateOrder(CoordinatorError, ValueError):
    """Raised by `sorter.add` while another job is kept under the order's id, `job_id`; nothing was written."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"an order is kept as job {job_id!r} already: another id, or ask again once it is gone")
        self.job_id = job_id


class LaneFull(CoordinatorError):
    """Raised by `submit` when `max_waiting` jobs wait in a lane already; nothing was written."""

    def __init__(self, key: str, waiting: int, job_id: str) -> None:
        super().__init__(f"{waiting} jobs wait in lane {key!r} already")
        self.key = key
        self.waiting = waiting
        self.job_id = job_id


class StoreUnavailable(CoordinatorError, ConnectionError):
    """Raised when Redis cannot be reached or did not answer in time.

    What was asked may or may not have happened. `job_id`, when set, is the id under which it is safe to ask again.
    """

    def __init__(self, text: str, job_id: str | None = None) -> None:
        super().__init__(text)
        self.job_id = job_id


class StoreRefused(CoordinatorError):
    """Raised when Redis refused a write (`maxmemory` reached, a read-only replica): nothing was done."""

    def __init__(self, text: str, job_id: str | None = None) -> None:
        super().__init__(text)
        self.job_id = job_id


class UnknownJob(CoordinatorError, KeyError):
    """Raised when no record is kept under `job_id`."""

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        return f"no job is kept under the id {self.job_id!r}: it never was, or its retention is over"


class Locked(CoordinatorError):
    """Raised by `lock` when `key` was still somebody else's after `wait` seconds; `holder` is the id of its job."""

    def __init__(self, key: str, holder: str | None) -> None:
        super().__init__(f"{key!r} is held by {holder or 'another job'}")
        self.key = key
        self.holder = holder


class LeaseLost(CoordinatorError):
    """Raised to a holder that can no longer be sure to be the only one: it must stop and write nothing more."""

    def __init__(self, key: str, fence: int) -> None:
        super().__init__(f"the lease on {key!r} with fence {fence} is no longer ours")
        self.key = key
        self.fence = fence


class NoRetry(CoordinatorError):
    """Raise it in a task: this attempt is the last, however many are left."""


class Conflict(CoordinatorError):
    """Raise it in a task that lost an optimistic race: it is tried again with jitter, at most 20 times, not counted in
    `max_attempts`. Types named in `retry_on=` mean the same."""


class StaleFence(CoordinatorError):
    """Raised to a writer whose `fence` is smaller than that of a later one, `seen`: nothing was written."""

    def __init__(self, document: str, entry: str, seen: int) -> None:
        super().__init__(f"document {document}: {entry} was changed under the greater fence {seen}")
        self.entry = entry
        self.seen = seen


class Changed(Conflict):
    """Raised to a writer where what it read is another by now: nothing was written; read again."""


class UpdatePending(CoordinatorError, TimeoutError):
    """Raised where not all nodes have an update in time: it is done once they can, or asked for again by its id."""

    def __init__(self, document: str, update_id: str) -> None:
        super().__init__(f"document {document}: update {update_id} waits for the nodes that keep it")
        self.update_id = update_id


class WouldDeadlock(CoordinatorError):
    """Recorded for a job that returned a sub-result which waits in a lane that the job itself holds."""


class ShuttingDown(CoordinatorError):
    """Raised by `submit` in a process whose shutdown has begun; nothing was written."""


class WaitTimeout(CoordinatorError, TimeoutError):
    """Raised by `wait` when the job was not over within the time given; the job itself goes on."""

    def __init__(self, job_id: str, state: str) -> None:
        super().__init__(f"job {job_id} is still {state}")
        self.job_id = job_id
        self.state = state


class TimedOut(CoordinatorError, TimeoutError):
    """Recorded as a job's error when an attempt went past its `time_limit`; its process is replaced."""
