"""Every error that the coordinator raises, as one tree.

CoordinatorError
├── SettingsError         a setting is unknown or out of range
├── InvalidJob            a submit that can never work; nothing was written
├── LaneFull              a submit found `max_waiting` jobs waiting; nothing was written
├── DuplicateOrder        another order of the sorter has this id; nothing was written
├── StoreUnavailable      Redis did not answer in time; it may have done what was asked
├── StoreRefused          Redis refused a write (out of memory, read-only); nothing was written
├── UnknownJob            Redis keeps no record under this id (none ever, or its retention is over)
├── UnknownEntry          no beat knows an entry of the schedule under this name
├── Locked                a lock was not free within `wait`
├── LeaseLost             another process got the lease, or may have got it
├── NoRetry               raised by a task: no further attempt
├── Conflict              raised by a task: it lost an optimistic race; a further attempt follows, and none is counted
│   └── Changed           an entry of a document is not what its author read
├── StaleFence            a write carries a smaller fence than an earlier write
├── UpdatePending         an update of a document is not committed in time; it goes on
├── WouldDeadlock         a job or a lock would wait for itself; the text names the ring
├── ShuttingDown          a submit in a process whose shutdown has begun
├── WaitTimeout           the job was not over in time; it goes on
├── JobFailed             the job whose result was asked for did not succeed, and its own error cannot be raised here
└── TimedOut              an attempt exceeded its `time_limit`
"""

from __future__ import annotations


class CoordinatorError(Exception):
    """The root: catch this to catch every error of this library."""


class SettingsError(CoordinatorError, ValueError):
    """Raised while the coordinator reads its settings: a name is unknown, or a value does not fit."""


class InvalidJob(CoordinatorError, ValueError):
    """Raised by `submit` before it writes anything; the text names the wrong part and the way out."""


class DuplicateOrder(CoordinatorError, ValueError):
    """Raised by `sorter.add` while Redis keeps another job under the order's id, `job_id`; nothing was written."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id!r} is another order: give another id, or ask again when that job is gone")
        self.job_id = job_id


class LaneFull(CoordinatorError):
    """Raised by `submit` when `max_waiting` jobs wait in a lane already; nothing was written.

    `job_ids`: of `submit_many`, the ids of all its jobs, as in StoreUnavailable.
    """

    def __init__(self, key: str, waiting: int, job_id: str) -> None:
        super().__init__(f"{waiting} jobs wait in lane {key!r} already")
        self.key = key
        self.waiting = waiting
        self.job_id = job_id
        self.job_ids: tuple[str, ...] = ()


class StoreUnavailable(CoordinatorError, ConnectionError):
    """Raised when Redis is out of reach or did not answer in time.

    `answered`: there is a server, which is no Redis or wants another password.

    Redis may have done what it was asked, or not. It is safe to ask again, under `job_id` where that is set. Where
    `submit_many` raises it, `job_ids` has the ids of all its jobs in their order: it is safe to ask again under those.
    """

    def __init__(self, text: str, job_id: str | None = None) -> None:
        super().__init__(text)
        self.job_id = job_id
        self.job_ids: tuple[str, ...] = ()
        self.answered = False


class StoreRefused(CoordinatorError):
    """Raised when Redis refused a write: it is a read-only replica, or `full` (`maxmemory`); nothing was written.

    Also raised where the server has no database of the address's number, and when its ACL forbids something to this
    user. In the second case a step may have stopped half way.

    `submit_many` may have written some of its jobs before: `job_ids` has the ids of all, as in StoreUnavailable.
    """

    def __init__(self, text: str, job_id: str | None = None, full: bool = False) -> None:
        super().__init__(text)
        self.job_id = job_id
        self.job_ids: tuple[str, ...] = ()
        self.full = full


class UnknownJob(CoordinatorError, KeyError):
    """Raised when Redis keeps no record under `job_id`."""

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        return f"no job is kept under the id {self.job_id!r}: there never was one, or its retention is over"


class UnknownEntry(CoordinatorError, LookupError):
    """Raised by `coordinator.entries`: no source that a beat read, and no code that stored it, has this entry."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no entry {name!r} in the schedule; `coordinator schedule` lists those that beats know")
        self.name = name


class Locked(CoordinatorError):
    """Raised by `lock` when another job still held `key` after `wait` seconds. `holder`: the id of that job.

    Also by the call of a keyed task with `on_skip="raise"` that is skipped. A skipped call for which no job stands ends
    with it.
    """

    def __init__(self, key: str, holder: str | None) -> None:
        super().__init__(key, holder)  # Celery's backends keep these, and make the error anew from them
        self.key = key
        self.holder = holder

    def __str__(self) -> str:
        return f"{self.key!r} is held by {self.holder or 'another job'}"


class LeaseLost(CoordinatorError):
    """Raised to a holder that may no longer be the only one: it must stop and write nothing more."""

    def __init__(self, key: str, fence: int) -> None:
        super().__init__(f"this process lost the lease on {key!r} with fence {fence}")
        self.key = key
        self.fence = fence


class NoRetry(CoordinatorError):
    """Raise it in a task: this attempt is the last, even if more are left."""


class Conflict(CoordinatorError):
    """Raise it in a task that lost an optimistic race.

    The task gets a further attempt after a random delay, at most 20 times, and `max_attempts` does not count these.
    The types in `retry_on=` mean the same.
    """


class StaleFence(CoordinatorError):
    """Raised to a writer whose fence is smaller than `seen`, that of an earlier write; nothing was written."""

    def __init__(self, document: str, entry: str, seen: int) -> None:
        super().__init__(f"document {document}: {entry} has the greater fence {seen} already")
        self.entry = entry
        self.seen = seen


class Changed(Conflict):
    """Raised to a writer whose read is out of date; nothing was written. Read again."""


class NotInReplicaSet(Conflict):
    """Raised to a job on a node that is out of a document's replica set: a later attempt runs on another node."""

    def __init__(self, document: str, node: str) -> None:
        super().__init__(f"node {node} is out of the replica set of the document {document}")
        self.document = document
        self.node = node

    def __reduce__(self) -> tuple[type[NotInReplicaSet], tuple[str, str]]:
        return type(self), (self.document, self.node)


class UpdatePending(CoordinatorError, TimeoutError):
    """Raised when not all nodes have an update in time. It goes on; ask again with its id to hear the outcome."""

    def __init__(self, document: str, update_id: str) -> None:
        super().__init__(f"document {document}: update {update_id} still waits for some of the document's members")
        self.update_id = update_id


class WouldDeadlock(CoordinatorError):
    """The recorded error of a job that would wait for itself; the text names each member of the ring."""


class ShuttingDown(CoordinatorError):
    """Raised by `submit` in a process whose shutdown has begun; nothing was written."""


class WaitTimeout(CoordinatorError, TimeoutError):
    """Raised by `wait` when the job was not over in time; the job itself goes on."""

    def __init__(self, job_id: str, state: str) -> None:
        super().__init__(f"job {job_id} is still {state}")
        self.job_id = job_id
        self.state = state


class JobFailed(CoordinatorError):
    """Raised by `Submission.get` where a job did not succeed, and this process cannot raise the error of its task."""

    def __init__(self, job_id: str, state: str, why: str = "") -> None:
        super().__init__(f"job {job_id} is {state}{f': {why}' if why else ''}")
        self.job_id = job_id
        self.state = state


class TimedOut(CoordinatorError, TimeoutError):
    """The recorded error of a job when an attempt exceeds its `time_limit`. Celery replaces its process."""
