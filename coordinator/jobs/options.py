"""The options of a submit, and the defaults of a task and its app where a submit names none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Required, TypedDict

from coordinator.jobs.spec import Signature, SignatureOptions

Arguments = tuple[list[object], dict[str, object]]

WhenBusy = Literal["queue", "skip", "defer", "replace"] | Mapping[str, Literal["queue", "skip"]]
KEEP = 30 * 86400.0  # seconds for which nobody grabs a completed instance again
ATTEMPTS = 3  # of a grab whose work fails

KeyOption = str | Callable[..., str | Sequence[str]]


@dataclass(frozen=True, slots=True)
class Backoff:
    """A policy of `retry_delay`: `first` seconds, doubling up to `cap`; with `jitter`, anything from 0 to that."""

    first: float = 1.0
    cap: float = 300.0
    jitter: bool = True


class TaskOptions(TypedDict, total=False):
    """How a job is to be treated, whenever it is submitted. Each option may be left out; times are seconds.

    * priority: -255 to 255, 0 where it is not named. A greater one goes first.
    * exclusive: in a lane with a limit above 1 the job runs alone.
    * needs: the labels that a node must have to run the job. A step may need more: `step.set(needs=[…])`.
    * merge_args: {argument: texts or None}. Where a job coalesces into another, these texts are united; None means
      everything.
    * max_attempts: how many calls may raise; 0 and 1 mean one call. Where it is not named, one, or the `max_retries` of
      a task that retries itself.
    * max_losses: how many runs may be lost with their process; the setting `max_losses` where it is not named.
    * retry_delay: seconds between attempts, a list of them (the last one repeats), or a `Backoff`.
    * retry_on: types of exceptions that are optimistic conflicts, as `Conflict` is.
    * if_unknown: `refuse` a task that nobody in a living fleet has, or `wait` for a node that has it.
    * rollback: a signature, also of a chain or group. It runs once when a job that was started will not succeed.
    * on_failure: `release` the lane, or `hold` it until an operator decides.
    * time_limit: the attempt's process is stopped after so long.
    * soft_time_limit: SoftTimeLimitExceeded is raised in the task where the pool gives it the main thread (prefork,
      solo), as in Celery.
    * max_lifetime: the job expires so long after its first claim; the setting `max_lifetime` where it is not named.
    """

    priority: int | None
    exclusive: bool
    needs: Collection[str]
    merge_args: Mapping[str, Collection[str] | None]
    max_attempts: int
    max_losses: int | None
    retry_delay: float | Sequence[float] | Backoff | None
    retry_on: Collection[type[BaseException]]
    if_unknown: Literal["refuse", "wait"]
    rollback: Mapping[str, object] | None
    on_failure: Literal["release", "hold"]
    time_limit: float | None
    soft_time_limit: float | None
    max_lifetime: float | None


class SorterOptions(TaskOptions, total=False):
    """The options of `TaskOptions`, and two of a single submit.

    * not_before: the job starts at this instant at the earliest; without a zone, it is in UTC.
    * start_at: the number of the step with which a chain begins, from 0.
    """

    not_before: datetime | None
    start_at: int


class SubmitOptions(SorterOptions, total=False):
    """The options of `submit`: those of `SorterOptions`, and some that look at the lane as it is now.

    * when_busy: `queue` puts the job in line. `skip` drops it while the lane is busy. `defer` coalesces it into a job
      of the same keys, task, arguments and class that was not started; where there is none, it stands in line.
      `replace` cancels the jobs at work in its lanes, and those that wait there to replace them, and stands in line.
      For a job over several keys, a mapping says `queue` or `skip` for each: {"pool": "queue", "item/7": "skip"}.
    * job_id: the job's id; a new one is made where it is not named.
    * max_waiting: LaneFull is raised where so many jobs wait in one of the lanes.
    * instance: text, a number or an instant, which makes the job a grab of this instance of its one key. It is done
      once: one job or process among all works on it, and the other submits lose. Instances wait for nobody.
    * keep_instance: so many seconds nobody does a completed instance again; 30 days where it is not named.
    """

    when_busy: WhenBusy
    job_id: str | None
    max_waiting: int | None
    instance: str | int | datetime | None
    keep_instance: float


class KeyedTaskOptions(TaskOptions, total=False):
    """The option `coordinate` of a keyed task: `@app.task(coordinate={"key": "order/{order_id}"})`.

    * key: a text over the task's own arguments, or a function of them that gives one key or several; or a list of such.
      `{headers[tenant]}`, or a function's parameter `headers`, is of the call's headers.
    * when_busy, max_waiting: as in `SubmitOptions`. A mapping names each part of `key` as it stands there:
      {"key": ["pool/{pool}", "item/{id}"], "when_busy": {"pool/{pool}": "queue", "item/{id}": "skip"}}.
    * on_skip: the call that was skipped gives the `result` of the job it was skipped for, or has Locked `raise`d.
    """

    key: Required[KeyOption | Sequence[KeyOption]]
    when_busy: WhenBusy | Mapping[KeyOption, Literal["queue", "skip"]]
    on_skip: Literal["result", "raise"]
    max_waiting: int | None


@dataclass(frozen=True, slots=True)
class TaskDefault:
    """A task's own values, which count unless the signature says otherwise. `result`: the app stores its result.

    `options`: those of a job of this task alone. `checked` gives the arguments as they are kept, after so many that the
    step before puts in front; it raises InvalidJob where the task does not take them. None: its process lacks the task.
    `app`: that of the nodes which have the task, None = the submitter's own.
    """

    queue: str
    time_limit: float | None = None
    soft_time_limit: float | None = None
    result: bool = False
    options: SignatureOptions = field(default_factory=SignatureOptions)
    checked: Callable[[Arguments, int], Arguments] | None = None
    app: str | None = None


@dataclass(frozen=True, slots=True)
class JobDefaults:
    """The app that jobs belong to, what its tasks have by default, and the group of a key (None: the usual one).

    `queue_of`: checks the name of a queue, where the app makes none that it does not have. Raises InvalidJob.
    """

    app: str
    default_of: Callable[[Signature], TaskDefault]
    fair_by: Callable[[str], str] | None = None
    queue_of: Callable[[str], str] = str
