"""Every error that the coordinator raises, as one tree.

CoordinatorError
├── SettingsError         a setting is unknown or out of range
├── InvalidJob            a submit that can never work; nothing was written
├── LaneFull              `max_waiting` jobs wait already; the submit wrote nothing
├── DuplicateOrder        another order in the sorter has this id; nothing was written
├── StoreUnavailable      Redis did not answer in time; it may have done the work
├── StoreRefused          Redis refused a write (out of memory, read-only)
├── Forbidden             a viewer may not act; nothing was done
├── UnknownJob            Redis keeps no record under this id: it never existed, or its retention is over
├── UnknownEntry          the schedule has no entry of this name
├── Locked                a lock did not become free in time
├── LeaseLost             another process has the lease, or may have it
├── NoRetry               raise it in a task: no further attempt
├── Refused               raise it in an inbox's handler: the request can never be done
├── Conflict              raise it in a task that lost an optimistic race: another attempt follows, which does not count
├── WouldDeadlock         a job or a lock would wait for itself; the text names the ring
├── ShuttingDown          a submit in a process whose shutdown has begun
├── WaitTimeout           the job did not end in time; it goes on
├── JobFailed             the job did not succeed, and its own error cannot be raised in this process
└── TimedOut              an attempt exceeded its `time_limit`: see timed_out.py
"""

from __future__ import annotations


class CoordinatorError(Exception):
    """The root: catch this to catch every error of this library."""


class SettingsError(CoordinatorError, ValueError):
    """Raised while the coordinator reads its settings: a name is unknown, or a value is invalid."""


class InvalidJob(CoordinatorError, ValueError):
    """Raised by `submit` before it writes anything; the text names the wrong argument and a remedy."""


class DuplicateOrder(CoordinatorError, ValueError):
    """Raised by `sorter.add` if Redis keeps another job under the order's id (`job_id`); nothing was written."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id!r} is another order: give another id, or ask again when that job is gone")
        self.job_id = job_id


class LaneFull(CoordinatorError):
    """Raised by `submit` when `max_waiting` jobs wait in a lane already; nothing was written.

    `job_ids`: in `submit_many`, the ids of all its jobs, as in StoreUnavailable.
    """

    def __init__(self, key: str, waiting: int, job_id: str) -> None:
        super().__init__(f"{waiting} jobs wait in lane {key!r} already")
        self.key = key
        self.waiting = waiting
        self.job_id = job_id
        self.job_ids: tuple[str, ...] = ()


class StoreUnavailable(CoordinatorError, ConnectionError):
    """Raised when Redis is out of reach or did not answer in time.

    `answered`: a server replied, but it is no Redis, or wants another password.

    Redis may have done the work or not. It is safe to repeat the call, with `job_id` as its id where that is set. From
    `submit_many`, `job_ids` has the ids of all its jobs in their order: it is safe to repeat the call with those.
    """

    def __init__(self, text: str, job_id: str | None = None) -> None:
        super().__init__(text)
        self.job_id = job_id
        self.job_ids: tuple[str, ...] = ()
        self.answered = False


class StoreRefused(CoordinatorError):
    """Raised when Redis refused a write: it is a read-only replica, or `full` (`maxmemory`); nothing was written.

    Also raised if the server has no database of this number, if its records have the format of a newer version, or if
    its ACL forbids a command. After a forbidden command, a step may have stopped half way.

    `submit_many` may have written some of its jobs before: `job_ids` has the ids of all, as in StoreUnavailable.
    """

    def __init__(self, text: str, job_id: str | None = None, full: bool = False) -> None:
        super().__init__(text)
        self.job_id = job_id
        self.job_ids: tuple[str, ...] = ()
        self.full = full


class Forbidden(CoordinatorError, PermissionError):
    """Raised by each act of an operator for an author who may only look; nothing was done. `by`: the author."""

    def __init__(self, by: str, act: str) -> None:
        super().__init__(f"{by} may look, and not act: {act} is for operators")
        self.by = by


class UnknownJob(CoordinatorError, KeyError):
    """Raised when Redis keeps no record under `job_id`."""

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        return f"no job is kept under the id {self.job_id!r}: there never was one, or its retention is over"


class UnknownEntry(CoordinatorError, LookupError):
    """Raised by `coordinator.entries` for a name that is neither in the table of a beat nor stored by code."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no entry {name!r} in the schedule; `coordinator schedule` lists those that beats know")
        self.name = name


class Locked(CoordinatorError):
    """Raised by `lock` when another job still held `key` after `wait` seconds. `holder`: the id of that job; None: its
    lane is paused, its limit is 0, or that job was over by then.

    Also by the call of a keyed task with `on_skip="raise"` that is skipped. A skipped call for which no job stands ends
    with it.
    """

    def __init__(self, key: str, holder: str | None, closed: str = "") -> None:
        """`closed`: the text of the error where no holder is known."""
        super().__init__(key, holder, closed)  # Celery's backends rebuild the error from these
        self.key = key
        self.holder = holder
        self._closed = closed

    def __str__(self) -> str:
        closed = self._closed or "closed: its lane is paused, or its limit is 0"
        return f"{self.key!r} is {f'held by {self.holder}' if self.holder else closed}"


class LeaseLost(CoordinatorError):
    """Raised in a process whose lease another process may have by now: it must stop, and write nothing more."""

    def __init__(self, key: str, fence: int) -> None:
        super().__init__(f"this process lost the lease on {key!r} with fence {fence}")
        self.key = key
        self.fence = fence


class NoRetry(CoordinatorError):
    """Raise it in a task to make this attempt the last."""


class Conflict(CoordinatorError):
    """Raise it in a task that lost an optimistic race.

    The task gets another attempt after a random delay, at most 20 times; these do not count as `max_attempts`. The
    types in `retry_on=` have the same effect.
    """


class Refused(CoordinatorError):
    """Raise it in an inbox's handler for a request that can never be done. The inbox keeps the reason for operators."""


class WouldDeadlock(CoordinatorError):
    """The recorded error of a job that would wait for itself; the text names each job and lock in the circle."""


class ShuttingDown(CoordinatorError):
    """Raised by `submit` in a process whose shutdown has begun; nothing was written."""


class WaitTimeout(CoordinatorError, TimeoutError):
    """Raised by `wait` when the job did not end in time; the job itself goes on."""

    def __init__(self, job_id: str, state: str) -> None:
        super().__init__(f"job {job_id} is still {state}")
        self.job_id = job_id
        self.state = state


class JobFailed(CoordinatorError):
    """Raised by `Submission.get` if the job did not succeed, and this process cannot raise the task's own error."""

    def __init__(self, job_id: str, state: str, why: str = "") -> None:
        super().__init__(job_id, state, why)  # Celery's backends rebuild the error from these
        self.job_id = job_id
        self.state = state
        self.why = why

    def __str__(self) -> str:
        return f"job {self.job_id} is {self.state}{f': {self.why}' if self.why else ''}"
