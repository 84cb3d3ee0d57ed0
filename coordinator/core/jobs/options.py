"""The options of a submit and of a keyed task, and the defaults that a job takes from its task and app.

    coordinator.submit("order/42", ship.s(42), max_attempts=3, retry_delay=Backoff(cap=60.0))

Where a submit does not name an option, the value in the declaration of the task applies, if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias, TypedDict

from coordinator.core.jobs.spec import Signature, SignatureOptions

Arguments = tuple[list[object], dict[str, object]]

WhenBusy = Literal["queue", "skip", "defer", "replace"] | Mapping[str, Literal["queue", "skip"]]
KEEP = 30 * 86400.0  # seconds for which the record of a completed instance is kept, so that it is not done again
ATTEMPTS = 3  # grabs of one instance whose work fails; after these, the instance cannot be grabbed again
MOST_CALLS = 10_000  # calls that one job collects
ORDERS_A_STEP = 300  # jobs that one call of a Redis function moves from a sorter into their lines

After: TypeAlias = "object | Sequence[object] | Mapping[str, object]"  # each: a job's id, a Submission or an event
OnFailureOf = Literal["fail", "run", "hold"]
KeyOption = str | Callable[..., str | Sequence[str]]


Units: TypeAlias = int | Literal["all"]


@dataclass(frozen=True, slots=True)
class Use:
    """What a job uses of one quota.

    `units`: how many, or `all`: the job runs while nobody else uses the quota. `until`: the units come back at the end
    of the `attempt`, or at the `end` of the job, so that it keeps them while it is parked, held or waits for a retry.
    """

    units: Units = 1
    until: Literal["attempt", "end"] = "attempt"


Uses: TypeAlias = str | Collection[str] | Mapping[str, Units | Use]


@dataclass(frozen=True, slots=True)
class Backoff:
    """A value of the option `retry_delay`: `first` seconds before the first retry, and twice as long before each next
    one, up to `cap` seconds. With `jitter`, a random time between 0 and that delay.
    """

    first: float = 1.0
    cap: float = 300.0
    jitter: bool = True


class CollectOptions(TypedDict, total=False):
    """The option `collect`: calls under one key become one job, which collects them until it is claimed.

    * how: what the job gets of its calls. `latest`: the arguments of the newest. `list`: one argument, the list of all
      as `Call`, in the order in which Redis got them. `merge`: those keyword arguments that are lists of texts unite,
      and None, which stands for everything, wins; calls that differ in anything else are different jobs.
    * idle: the job goes into line once no call came for so many seconds. 0: at once, and it collects while it waits.
    * max_wait: at the latest so many seconds after the first call; None: no bound.
    * most, most_bytes: so many calls at most, and bytes of their arguments; a full job goes into line at once, and the
      next call begins the next. By default 10,000 calls, and the setting `max_payload`.
    """

    how: Literal["latest", "list", "merge"]
    idle: float
    max_wait: float | None
    most: int
    most_bytes: int | None


class TaskOptions(TypedDict, total=False):
    """The options of a job that a submit, a sorter and a keyed task have in common. All may be left out; times are in
    seconds.

    * priority: -255 to 255, 0 where it is not named. A greater one goes first.
    * exclusive: the job uses all of each of its quotas, so that it runs alone there.
    * needs: the labels that a node must have to run the job. A step may need more: `step.set(needs=[…])`.
    * max_attempts: the number of attempts that may raise before the job has failed for good; 0 and 1 mean one. By
      default one, or as many as `max_retries` allows where a task calls `self.retry`.
    * max_losses: how many attempts may be lost with their process or node; by default the setting `max_losses`.
    * retry_delay: seconds between attempts, a list of such delays (the last one repeats), or a `Backoff`.
    * retry_on: types of exceptions that are optimistic conflicts, as `Conflict` is: they do not count as
      `max_attempts`.
    * if_unknown: `refuse` a task that no living node has, or let the job `wait` until a node has it.
    * rollback: a signature, also of a chain or group. It runs once where a job that was started ends without success.
    * on_failure: `release` the lane of a job that failed for good, or `hold` it until an operator decides.
    * time_limit: the process of an attempt is killed after so long.
    * soft_time_limit: SoftTimeLimitExceeded is raised in the task if the pool gives it the main thread (prefork, solo),
      as in Celery.
    * max_lifetime: a job that is not over so long after its first claim expires; by default the setting `max_lifetime`.
    """

    priority: int | None
    exclusive: bool
    needs: Collection[str]
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
    """The options of `TaskOptions`, and three of a single submit.

    * uses: the quotas of which the job uses units while it runs: a name, several, or {name: units}, 16 at most; units
      are a number, "all", or a `Use`. Its turn in all lanes comes first, then all its quotas at one instant.
    * not_before: the earliest time at which the job may start; a datetime without a time zone is in UTC.
    * start_at: the number of the step with which a chain begins, from 0.
    """

    uses: Uses | None
    not_before: datetime | None
    start_at: int


class SubmitOptions(SorterOptions, total=False):
    """The options of `submit`: those of `SorterOptions`, and some that depend on the lane as it is now.

    * when_busy: what to do while another job runs or waits in a lane of this one. `queue`: put the job in line. `skip`:
      submit nothing. `defer`: coalesce into a job of the same keys, task, arguments and routing class that has not
      started; where there is none, put the job in line. `replace`: cancel the jobs that run in its lanes, and those
      that wait there with `replace`, too, and put the job in line. For several keys, a mapping may say `queue` or
      `skip` for each: {"pool": "queue", "item/7": "skip"}.
    * collect: collect the calls under the first key into one job, see `CollectOptions`; in place of `when_busy`. All
      other options of the job are those of its first call, but that it expires when its newest would.
    * job_id: the id of the job; by default the `task_id` of the signature, or a new id.
    * max_waiting: LaneFull is raised if so many jobs wait in one of the lanes, or for one of the quotas.
    * instance: a text, whole number or datetime that names a piece of work of the job's one key, such as a day. Of all
      jobs and processes that ask for the same instance, one gets it; for the others, the outcome of the submit is
      `lost`. Different instances of a key run at the same time.
    * after: what the job waits for in no line: ids of jobs, Submissions, events (`coordinator.event`), 1000 at most.
      Once all have ended, or are set, the job joins its lanes at the place of its submit. As {argument: cause}, the
      job gets the results of its causes by these arguments.
    * on_failure_of: what becomes of the job if a cause ends without success, or its record is gone: it is to `fail`
      with CauseFailed, `run` all the same (with None for the result), or `hold` until an operator decides or the cause
      succeeds after all.
    * keep_instance: for so many seconds after its completion an instance is not done again; by default 30 days.
    """

    when_busy: WhenBusy
    collect: CollectOptions | None
    job_id: str | None
    max_waiting: int | None
    instance: str | int | datetime | None
    keep_instance: float
    after: After
    on_failure_of: OnFailureOf


class KeyedTaskOptions(TaskOptions, total=False):
    """The option `coordinate` of a keyed task: `@app.task(coordinate={"key": "order/{order_id}"})`.

    * uses: the quotas of a call, named by templates or functions as `key` is; also {template: units}. A task with
      `uses` may have no key: it stands in no lane.
    * key: a template with the names of the task's arguments, a function that takes these arguments and returns one or
      several keys, or a list of templates and functions. In a template, `{headers[tenant]}` stands for a header of the
      call; a function with a parameter `headers` gets all its headers.
    * when_busy, collect, max_waiting: as in `SubmitOptions`. A mapping names each element of `key`, exactly as written
      there: {"key": ["pool/{pool}", "item/{id}"], "when_busy": {"pool/{pool}": "queue", "item/{id}": "skip"}}.
    * on_skip: what a call gives that was skipped: the `result` of the job for which it was skipped, or `raise`, which
      raises Locked.
    """

    key: KeyOption | Sequence[KeyOption]
    uses: KeyOption | Sequence[KeyOption] | Mapping[str, Units | Use]
    when_busy: WhenBusy | Mapping[KeyOption, Literal["queue", "skip"]]
    collect: CollectOptions | None
    on_skip: Literal["result", "raise"]
    max_waiting: int | None


@dataclass(frozen=True, slots=True)
class TaskDefault:
    """The values in the declaration of a task, which apply where its signature names none. `result`: the app stores the
    result of the task.

    `options`: apply only where the job is this task alone. `checked(arguments, before)` returns the arguments as the
    record keeps them, where the task will get `before` results of earlier steps in front of them; it raises InvalidJob
    if the task does not take such arguments. None: this process lacks the task, so nothing is checked. `app`: the name
    of the app of the nodes that have the task, None = the app of the submitter. `rate`: the task's rate limit of
    Celery's, as `<units>/<ms>`: a quota of its jobs.
    """

    queue: str
    time_limit: float | None = None
    soft_time_limit: float | None = None
    result: bool = False
    options: SignatureOptions = field(default_factory=SignatureOptions)
    checked: Callable[[Arguments, int], Arguments] | None = None
    app: str | None = None
    rate: str = ""


@dataclass(frozen=True, slots=True)
class JobDefaults:
    """What jobs take from their app. `app`: its name. `default_of`: returns the values that a task declares.

    `fair_by`: returns the group of a key; groups have fair shares of the slots. None: the group is the part of the key
    before the first `/`. `queue_of`: returns the name of a queue; raises InvalidJob for a name that the app does not
    know, where the app creates no missing queues.
    """

    app: str
    default_of: Callable[[Signature], TaskDefault]
    fair_by: Callable[[str], str] | None = None
    queue_of: Callable[[str], str] = str
