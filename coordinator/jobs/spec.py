"""Types of the JSON in a job's record, and of the signatures that it is made of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Required, TypedDict

# Headers of messages that a job publishes: the job that waits for them, and the fence of the attempt.
CHILD = "coordinator_parent"
ATTEMPT = "coordinator_attempt"
# Headers in which the W3C has tracers hand on the trace: OpenTelemetry reads them.
TRACE = ("traceparent", "tracestate", "baggage")


class SignatureOptions(TypedDict, total=False):
    """The options of a signature that a job can honour."""

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
    """A task and its arguments. A chain, group or chord (`subtask_type`) has its tasks in `kwargs`."""

    task: Required[str]
    args: Sequence[object]
    kwargs: Mapping[str, object]
    options: SignatureOptions
    subtask_type: str | None
    immutable: bool


class InCanvas(TypedDict, total=False):
    """The `kwargs` of a canvas: the `tasks` of a chain or group, the `header` and the `body` of a chord."""

    tasks: Sequence[Signature]
    header: Signature | Sequence[Signature]
    body: Signature | None


_WithClass = TypedDict("_WithClass", {"class": str}, total=False)


class StepSpec(_WithClass, total=False):
    """A step in the record: a task and its arguments, or a `canvas` to publish. `limit`: ms; `soft`: seconds. `again`:
    the retry by which it replaces the step before.
    """

    task: str
    args: list[object]
    kwargs: dict[str, object]
    immutable: int
    headers: dict[str, object]
    shadow: str
    soft: float
    canvas: Signature
    limit: int
    again: Again


class Again(TypedDict):
    """A `self.retry` by another call: it begins after `tries` tries, `delay` seconds after `error`.

    `most`: the task's own bound on tries.
    """

    tries: int
    delay: float
    most: int | None
    error: ErrorRecord


class Policy(TypedDict):
    """A `Backoff` in the record."""

    first: float
    cap: float
    jitter: bool


class Message(TypedDict, total=False):
    """What a message would have carried of a call: its place in a canvas, and more that `self.request` shows.

    A usual value is left out. `retries`: the number before the call was submitted. `stamps`: the headers that
    `stamped_headers` names. `child_of`: the job that waits for the end of the call, or of the task that published it.
    `priority`: as the caller named it.
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
    """The part of a record that only the runner reads: of a single task its step, of a chain `steps` and `first`.

    `first`: the number of the step to begin with. `rest`: not in a record; the steps behind the one that replaces the
    job's own step. `free`: the task's own bound on attempts counts. `rollback`: written as a job is.
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
    """The end of a sub-result of an attempt: a `result` or an `error`; neither where it had not ended."""

    id: str
    result: object
    error: ErrorRecord


class ErrorRecord(TypedDict, total=False):
    """Why an attempt or a job ended badly; `by`, `ticket` and `at` (ms): who cancelled or released it, and when;
    `act`: the id of the act on many that did it.

    `args`: of the exception, where they are more than its text. `parts`: the sub-results of an attempt that was parked,
    as far as they fit into `max_payload`.
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
    """The sub-results that a parked job waits for; `one`: its task returned a single result, not a list."""

    ids: list[str | None]
    one: bool
