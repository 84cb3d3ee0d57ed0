"""Types of the JSON texts in the record of a job, and of the Celery signatures from which a submit makes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Required, TypedDict

# Headers of the messages of tasks that a job publishes: the id of the job, which waits for the tasks, and the fence of
# the attempt that published them.
CHILD = "coordinator_parent"
ATTEMPT = "coordinator_attempt"
# Headers of the W3C's Trace Context, which OpenTelemetry reads.
TRACE = ("traceparent", "tracestate", "baggage")


class SignatureOptions(TypedDict, total=False):
    """The options of a signature (`set(…)`) that also work in a job; a submit refuses all others."""

    queue: str
    countdown: float
    eta: datetime | str
    expires: float | datetime | str
    priority: int
    task_id: str
    time_limit: float
    soft_time_limit: float
    link: Signature | list[Signature]
    link_error: Signature | list[Signature]
    headers: dict[str, object]
    shadow: str
    ignore_result: bool
    needs: Collection[str]


class Signature(TypedDict, total=False):
    """A Celery signature as a dict. A chain, group or chord, which `subtask_type` names, has its tasks in `kwargs`."""

    task: Required[str]
    args: Sequence[object]
    kwargs: Mapping[str, object]
    options: SignatureOptions
    subtask_type: str | None
    immutable: bool


class InCanvas(TypedDict, total=False):
    """The `kwargs` of the signature of a canvas: `tasks` of a chain or group, `header` and `body` of a chord."""

    tasks: Sequence[Signature]
    header: Signature | Sequence[Signature]
    body: Signature | None


_WithClass = TypedDict("_WithClass", {"class": str}, total=False)


class StepSpec(_WithClass, total=False):
    """A step of a job in the record: a task and its arguments, or a `canvas` that the step publishes.

    `class`: the routing class. `immutable`: 1 if the step does not get the result of the step before. `awaited`: 1 if
    it gets the value of the event for which the job waited. `limit`: the time limit in ms, 0 = none; `soft`: the soft
    time limit in seconds. `again`: set if a `self.retry` with other arguments or options put this step in the place of
    the one that raised.
    """

    task: str
    args: list[object]
    kwargs: dict[str, object]
    immutable: int
    awaited: int
    headers: dict[str, object]
    shadow: str
    soft: float
    canvas: Signature
    limit: int
    again: Again


class Again(TypedDict):
    """A `self.retry` with other arguments or options: the changed call begins `delay` seconds after `error`.

    `tries`: how often the task was tried before. `most`: the bound on tries that the task itself sets; None: that of
    the job.
    """

    tries: int
    delay: float
    most: int | None
    error: ErrorRecord


class Policy(TypedDict):
    """The option `Backoff` in the record: `first` and `cap` in seconds."""

    first: float
    cap: float
    jitter: bool


class Message(TypedDict, total=False):
    """What the Celery message of a call would have carried beside the task, its arguments and its options: the place of
    the call in a canvas, and other values that `self.request` shows. Default values are left out.

    `retries`: how often the call was retried before it was submitted. `stamps`: the values of the headers that
    `stamped_headers` names. `child_of`: the id of the job that waits for the end of the call, or of the task that
    published the call. `priority`: as the caller gave it.
    """

    chain: list[Signature]
    chord: Signature
    group: str
    group_index: int
    root_id: str
    parent_id: str
    reply_to: str
    origin: str
    stamped_headers: list[str]
    stamps: dict[str, object]
    replaced_task_nesting: int
    retries: int
    child_of: str
    eta: str
    expires: str
    priority: int
    argsrepr: str
    kwargsrepr: str


class Spec(StepSpec, total=False):
    """The field `spec` of a record, which the runner reads: the step of a single task, or the `steps` of a chain.

    `first`: the number of the step with which the job begins. `rest`: set only in memory: the steps that are to run
    after the current one, where `self.replace` put several steps in its place. `rollback`: in the form of a job's own
    spec. `retry_on`: names of exceptions, as `module.name`. `free`: 1 if the submit named no `max_attempts`, so that
    the `max_retries` of the task applies.
    """

    steps: list[StepSpec]
    first: int
    rest: list[StepSpec]
    message: Message
    rollback: Spec
    link: list[Signature]
    link_error: list[Signature]
    ignore_result: bool
    retry_delay: list[float] | Policy
    retry_on: list[str]
    free: int


class SubResultEnd(TypedDict, total=False):
    """How a sub-result, a task or job for which a parked attempt waits, ended: with a `result` or an `error`; it has
    neither if the sub-result had not ended yet.
    """

    id: str
    result: object
    error: ErrorRecord


class ErrorRecord(TypedDict, total=False):
    """Why an attempt or a job failed: the exception, or an operator's cancel or release.

    `by`, `ticket`, `at` (ms since the epoch): author, ticket and time of the cancel or release; `act`: its id, if it
    was for many jobs. `args`: the arguments of the exception, where they are more than its text. `parts`: how the
    sub-results of a parked attempt ended, as many as fit into `max_payload`.
    """

    type: str
    module: str
    message: str
    args: list[object]
    traceback: str
    by: str
    ticket: str
    at: int
    act: str
    parts: list[SubResultEnd]


class Handles(TypedDict):
    """The ids of the sub-results for which a parked job waits. `one`: its task returned a single handle, not a list."""

    ids: list[str | None]
    one: bool
