"""The exceptions of the library, all subclasses of `CoordinatorError`.

CoordinatorError
├── SettingsError         a setting is unknown or out of range
├── InvalidJob            a submit that can never work; nothing was written
├── LaneFull              `max_waiting` jobs wait already; the submit wrote nothing
├── UnknownQuota          nobody declared this quota; the submit wrote nothing
├── DuplicateOrder        another order in the sorter has this id; nothing was written
├── StoreUnavailable      Redis did not answer in time; it may have done the work
├── StoreRefused          Redis refused a write (out of memory, read-only)
├── Forbidden             the author of an operator's act is only a viewer; nothing was done
├── UnknownJob            Redis keeps no record under this id: it never existed, or its retention is over
├── UnknownEntry          the schedule has no entry of this name
├── Locked                a lock did not become free in time
├── LeaseLost             this process has lost its lease: another process has it, or may have it
├── NoRetry               raised by a task that is to get no further attempt
├── Refused               raise it in an inbox's handler: the request can never be done
├── CoolDown              raised by `CurrentJob.cool_down` to end the attempt: let it pass
├── EventTaken            the event is set already, to another value, which it keeps
├── EventTimeout          the error of a job that waited for an event which was not set in time
├── CauseFailed           the error of a job that was to run after another one, which did not succeed
├── Conflict              raise it in a task that lost an optimistic race: another attempt follows, which does not count
├── WouldDeadlock         a job or lock would wait for itself; the text names the jobs and locks in the ring
├── ShuttingDown          a submit in a process whose shutdown has begun; nothing was written
├── WaitTimeout           the job did not end within the timeout of `wait`; the job goes on
├── JobFailed             the job did not succeed, and its own error cannot be raised in this process
└── TimedOut              an attempt exceeded its `time_limit`: see timed_out.py
"""

from __future__ import annotations


class CoordinatorError(Exception):
    """The base class of all exceptions of this library."""


class SettingsError(CoordinatorError, ValueError):
    """Raised while the coordinator reads its settings: a name is unknown, or a value is invalid."""


class InvalidJob(CoordinatorError, ValueError):
    """Raised for a wrong argument of `submit` or of another call, before anything is written. The text names the
    argument and a remedy.
    """


class DuplicateOrder(CoordinatorError, ValueError):
    """Raised by `Sorter.add` where Redis keeps another job under the id of the new order; nothing was written.

    `job_id`: that id.
    """

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id!r} is another order: give another id, or try again when that job is gone")
        self.job_id = job_id


class LaneFull(CoordinatorError):
    """Raised by `submit` with the option `max_waiting` where so many jobs wait in a lane, or for a quota, already.

    Nothing was written. `key`: of the lane, or the name of the quota; `waiting`: how many jobs wait there; `job_id`: of
    the refused job. `job_ids`: after `submit_many`, the ids of all jobs of the call, of which some may be written; the
    call may be repeated with them.
    """

    def __init__(self, key: str, waiting: int, job_id: str) -> None:
        super().__init__(f"{waiting} jobs wait for {key!r} already")
        self.key = key
        self.waiting = waiting
        self.job_id = job_id
        self.job_ids: tuple[str, ...] = ()


class UnknownQuota(InvalidJob):
    """Raised where nobody has declared the quota that is named; nothing was written. `near`: a hint at a near name.

    `job_ids`: in `submit_many`, the ids of all its jobs, as in StoreUnavailable.
    """

    def __init__(self, quota: str, near: str = "") -> None:
        super().__init__(
            f"nobody declared the quota {quota!r}{near}: coordinator.quota({quota!r}, concurrency=…) does; with "
            "coordinator_quota_unknown = 'open' it has no bounds"
        )
        self.quota = quota
        self.near = near
        self.job_ids: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[type[UnknownQuota], tuple[str, str]]:
        return type(self), (self.quota, self.near)


class StoreUnavailable(CoordinatorError, ConnectionError):
    """Raised when Redis is out of reach or did not answer in time. Redis may have run the call or not.

    It is safe to repeat the call. `job_id`: if not None, repeat `submit` with this `job_id`. `job_ids`: after
    `submit_many`, the ids of all jobs of the call, in their order: repeat it with these. `answered`: True where a
    server replied that is not a Redis, or refused the password, or where the password cannot be read: a repeated call
    would not help.
    """

    def __init__(self, text: str, job_id: str | None = None) -> None:
        super().__init__(text)
        self.job_id = job_id
        self.job_ids: tuple[str, ...] = ()
        self.answered = False


class StoreRefused(CoordinatorError):
    """Raised when Redis refused a write: the server is a read-only replica, or has reached `maxmemory`. Nothing was
    written. `full`: True after `maxmemory`.

    Also raised if the server has no database of this number, if the records in Redis have the format of a newer
    version, or if an ACL forbids a command. After a forbidden command, a step may have stopped half way.

    `job_id`: the job of a refused `submit`, else None. `job_ids`: after `submit_many`, which may have written some of
    the jobs, the ids of all; the call may be repeated with them.
    """

    def __init__(self, text: str, job_id: str | None = None, full: bool = False) -> None:
        super().__init__(text)
        self.job_id = job_id
        self.job_ids: tuple[str, ...] = ()
        self.full = full


class Forbidden(CoordinatorError, PermissionError):
    """Raised by each call for operators, such as `cancel` or `pause`, if its author is only a viewer; nothing was done.

    `by`: the name of the author.
    """

    def __init__(self, by: str, act: str) -> None:
        super().__init__(f"{by} is a viewer, who may only read: {act} is for operators")
        self.by = by


class UnknownJob(CoordinatorError, KeyError):
    """Raised when Redis keeps no record of a job under the id `job_id`: none was written, or its retention is over.

    `outbox`: the row that a transaction wrote of it, and why no node has submitted it yet; "" if there is none. After a
    submit whose `after` names the job, nothing was written; `job_ids`: of all jobs of `submit_many`, as in
    StoreUnavailable.
    """

    def __init__(self, job_id: str, outbox: str = "") -> None:
        super().__init__(job_id)
        self.job_id, self.outbox = job_id, outbox
        self.job_ids: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.outbox:
            return f"job {self.job_id!r} is in an outbox yet, as {self.outbox}"
        return f"no job is kept under the id {self.job_id!r}: it never existed, or its retention is over"


class UnknownEntry(CoordinatorError, LookupError):
    """Raised by the methods of `coordinator.entries` where the schedule has no entry of the name `name`: neither do the
    beats of the app know one, nor has code stored one.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"no entry {name!r} in the schedule; `coordinator schedule` lists the known ones")
        self.name = name


class EventTaken(CoordinatorError):
    """Raised by a second `set` of the event `name` with another value; `held`: the JSON that it has and keeps."""

    def __init__(self, name: str, held: str) -> None:
        super().__init__(name, held)
        self.name, self.held = name, held

    def __str__(self) -> str:
        return f"event {self.name!r} is set already, to {self.held:.200}: it keeps that value; name another event"


class EventTimeout(CoordinatorError):
    """The error of a job that waited for an event in vain (`wait_for`): it was not set in time."""


class CauseFailed(CoordinatorError):
    """The error of a job that was to run after another one (`after`), which ended without success."""


class Locked(CoordinatorError):
    """Raised by `lock` when the lane of `key`, or units of a quota, were not free within `blocking_timeout` seconds.

    `holder`: the id of the job or lock that has the lane; None: the lane is paused, units are lacked, or the holder has
    ended meanwhile.

    Also raised by a skipped call of a keyed task with `on_skip="raise"`, and by a skipped call that has no job whose
    result it could wait for.
    """

    def __init__(self, key: str, holder: str | None, closed: str = "") -> None:
        """`closed`: the reason in the text of the error where `holder` is None; "" for a general one."""
        super().__init__(key, holder, closed)  # Celery's result backends rebuild the error from `args`
        self.key = key
        self.holder = holder
        self._closed = closed

    def __str__(self) -> str:
        closed = self._closed or "closed: its lane is paused"
        return f"{self.key!r} is {f'held by {self.holder}' if self.holder else closed}"


class LeaseLost(CoordinatorError):
    """Raised in a process that has lost its lease on the lane `key`, or may have lost it. The process must stop its
    work on the key, and write nothing more. `fence`: the fence of the lost lease.
    """

    def __init__(self, key: str, fence: int) -> None:
        super().__init__(f"this process lost the lease on {key!r} with fence {fence}")
        self.key = key
        self.fence = fence


class NoRetry(CoordinatorError):
    """To be raised by a task: its job fails, and gets no further attempt."""


class CoolDown(CoordinatorError):
    """Raised by `CurrentJob.cool_down` to end the attempt: let it pass. The job goes back to its place, starts again
    after the cool-down; this counts neither as an attempt nor as a conflict.

    `seconds`: for how long; `quota`: the name of one of the job's quotas, "" = all of them.
    """

    def __init__(self, seconds: float, quota: str = "") -> None:
        super().__init__(seconds, quota)
        self.seconds = seconds
        self.quota = quota

    def __str__(self) -> str:
        return f"{self.quota or 'its quotas'} cools down for {self.seconds:g} s"


class Conflict(CoordinatorError):
    """To be raised by a task that found its data changed by another writer (optimistic locking).

    The job gets another attempt after a random delay, at most 20 times; these attempts do not count towards
    `max_attempts`. The exception types in the option `retry_on` have the same effect.
    """


class Refused(CoordinatorError):
    """To be raised by the handler of an inbox for a request that can never be done. The inbox stores the reason for
    operators, and does not retry the request.
    """


class WouldDeadlock(CoordinatorError):
    """Raised by a call that would make a job or lock wait for itself, and the recorded error of such a job. The text
    names the jobs and locks that wait for each other in a ring.
    """


class ShuttingDown(CoordinatorError):
    """Raised by `submit` in a process whose shutdown has begun; nothing was written."""


class WaitTimeout(CoordinatorError, TimeoutError):
    """Raised by `wait` if the job did not end within the timeout; the job goes on. `state`: of the job at that time."""

    def __init__(self, job_id: str, state: str) -> None:
        super().__init__(f"job {job_id} is still {state}")
        self.job_id = job_id
        self.state = state


class JobFailed(CoordinatorError):
    """Raised by `Submission.get` if the job did not succeed, and this process cannot rebuild the task's own exception.

    `state`: how the job ended; `why`: the message of the task's exception, "" for none.
    """

    def __init__(self, job_id: str, state: str, why: str = "") -> None:
        super().__init__(job_id, state, why)  # Celery's result backends rebuild the error from `args`
        self.job_id = job_id
        self.state = state
        self.why = why

    def __str__(self) -> str:
        return f"job {self.job_id} is {self.state}{f': {self.why}' if self.why else ''}"
