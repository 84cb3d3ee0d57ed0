"""A job as it is kept: its record, the hash `{prefix}:job:<id>`, and its states. Only this module reads records.

`read` and `fields` ask for one record, `read_many` and `fields_of_many` for several in one round trip, `scan` for all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, cast, get_args

from kombu.utils.json import loads

from coordinator.errors import UnknownJob
from coordinator.jobs import chain
from coordinator.jobs.spec import Cause, Spec, StepSpec
from coordinator.jobs.states import Over, State
from coordinator.store.client import Store
from coordinator.store.times import instant, milliseconds
from coordinator.store.values import Act

_PAGE = 500
_SPEC = ("spec", *(f"spec{number}" for number in range(1, 8)))
_NUMBERS = ("step", "attempt", "losses", "forgiven")

TERMINAL = frozenset(get_args(Over))


@dataclass(frozen=True, slots=True)
class Job:
    """A job's record at one moment. Times are aware UTC datetimes, None = not yet.

    `step`: of a chain, the one at work; args and kwargs are its own. `attempt`: how often the job was tried; the next
    step of a chain is no further try. `error`: why it does not go well; of a job that was tried again and succeeded,
    None. `rollback`: done or failed, once it was run; `fault`: why it failed. `acts`: what an operator did to it or its
    lane (retried, moved, paused, resumed): {why, by, at (ms)}; of a job that was cancelled or released, `error` says
    that.
    """

    id: str
    keys: tuple[str, ...]
    state: State
    task: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    attempt: int
    losses: int
    node: str | None
    fence: int | None
    submitted: datetime | None
    taken: datetime | None
    started: datetime | None
    ended: datetime | None
    result: Any
    error: Cause | None
    progress: tuple[int, int] | None
    step: int = 0
    priority: int = 0
    weight: str = "1"
    rollback: str | None = None
    fault: Cause | None = None
    acts: dict[str, Act] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.keys[0]

    @property
    def over(self) -> bool:
        return self.state in TERMINAL

    @property
    def waited_for(self) -> bool:
        """True where `wait` ends: the job is over, or an operator must decide."""
        return self.over or self.state == "held"


def counts(store: Store) -> dict[str, int]:
    """How many jobs are in each state, ended in each outcome, were `created`; and `retries`, `losses`, `faults`."""
    found = store.step("counts_read")
    return {name.decode(): number for name, number in zip(found[::2], found[1::2], strict=True)}


def parse(job_id: str, record: Mapping[bytes, bytes]) -> Job:
    """A Job from its hash, as Redis gives it."""
    text = _unfaded({name.decode(): value.decode() for name, value in record.items()})
    spec: Spec = loads(spec_of(record))
    number = int(text.get("step", 0))
    laid = chain.laid(spec, number)
    kwargs = dict(laid.get("kwargs", {})) | (loads(text["unite"]) if "unite" in text else {})
    done, _, total = text.get("progress", "").partition("/")
    return Job(
        id=job_id,
        keys=tuple(text["keys"].split("\n")),
        state=state_of(text),
        task=text.get("task", ""),
        args=tuple(laid.get("args", ())),
        kwargs=kwargs,
        attempt=tries(int(text.get("attempt", 0)), number, spec),
        losses=int(text.get("losses", 0)),
        node=text.get("node"),
        fence=int(text["fence"]) if "fence" in text else None,
        submitted=instant(text.get("submitted")),
        taken=instant(text.get("taken")),
        started=instant(text.get("started")),
        ended=instant(text.get("ended")),
        result=loads(text["result"]) if text.get("result") else None,
        error=cause_of(text.get("error")) if text["state"] != "succeeded" else None,
        progress=(int(done), int(total)) if total else None,
        step=number,
        priority=int(text.get("priority", 0)),
        weight=text.get("weight", "1"),
        rollback=text.get("rollback"),
        fault=cause_of(text.get("fault")),
        acts={name: loads(text[name]) for name in ("retried", "paused", "resumed", "moved") if name in text},
    )


def tries(claims: int, number: int, spec: Spec) -> int:
    """The attempt that people count, of a job at its `number`th step: the claims that ended a step well are none."""
    return claims - number + spec.get("first", 0)


def state_of(record: Mapping[str, str]) -> State:
    """A job whose rollback is ready, runs or is parked is being rolled back."""
    rolling = record.get("phase") == "rollback" and record["state"] in ("ready", "running", "parked")
    return cast(State, "rolling_back" if rolling else record["state"])


def _unfaded(record: dict[str, str]) -> dict[str, str]:
    """The fields of a record; those of a success that owes nothing are in one text (functions/rules/retention.lua)."""
    if "past" not in record:
        return record
    submitted, taken, started, ended, fence, attempt, node = record["past"].split(" ", 6)
    instants = {"taken": taken, "started": started, "ended": ended}
    since = int(submitted)
    return record | {
        "submitted": submitted,
        **{name: str(since + int(ms)) for name, ms in instants.items()},
        "fence": str((since + int(started)) * 1000 + int(fence)),
        "attempt": attempt,
        "node": node,
    }


def cause_of(text: str | None) -> Cause | None:
    """An error as it is kept; a run that was lost has no more than a sentence."""
    error = loads(text) if text else None
    return {"type": "Lost", "message": error} if isinstance(error, str) else error


def spec_of(record: Mapping[bytes, bytes]) -> str:
    """The spec of a record as JSON; it may be cut into pieces: functions/rules/record.lua."""
    return b"".join(record.get(name.encode(), b"") for name in _SPEC).decode() or "{}"


def read(store: Store, job_id: str) -> dict[bytes, bytes]:
    """All fields of a record. Raises UnknownJob. The id of a coalesced submit has nothing but `alias`."""
    record = store.read("HGETALL", store.key("job", job_id), job_id=job_id)
    if not record:
        raise UnknownJob(job_id)
    return cast(dict[bytes, bytes], record)


def read_many(store: Store, ids: Sequence[str]) -> Iterator[Job]:
    """The jobs of these ids that are kept, in one round trip."""
    records = store.read_many([("HGETALL", store.key("job", job_id)) for job_id in ids])
    for job_id, record in zip(ids, records, strict=True):
        if record:
            yield parse(job_id, record)


def keep_on(store: Store, ids: Collection[str], seconds: float) -> None:
    """Have Redis keep the records of these jobs, which are over, for so long at least."""
    store.read_many([("PEXPIRE", store.key("job", job_id), milliseconds(seconds), "GT") for job_id in ids])


def fields(store: Store, job_id: str, *names: str) -> list[str]:
    """These fields of one record, empty where it has none."""
    found = store.read("HMGET", store.key("job", job_id), *names)
    return [(value or b"").decode() for value in found]


def fields_of_many(store: Store, ids: Sequence[str], *names: str) -> list[list[str]]:
    """These fields of each record, in one round trip."""
    replies = store.read_many([("HMGET", store.key("job", job_id), *names) for job_id in ids])
    return [[(value or b"").decode() for value in found] for found in replies]


def owned(store: Store, job_id: str, token: str) -> bool:
    """Does this token still own the job?"""
    current, state, condemned = fields(store, job_id, "token", "state", "condemned")
    return current == token and state in ("running", "ready") and condemned != current


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a job stands: its key, its task, the step at work, and how many attempts before the last one raised.

    `back`: the number of the rollback's step, None where the job is not rolled back; `error`: why it is.
    """

    key: str
    task: str
    spec: Spec
    step: int
    tries: int
    back: int | None
    error: Cause | None

    @property
    def following(self) -> StepSpec | None:
        """The step after the one at work."""
        if self.back is not None:
            return chain.following(self.spec["rollback"], self.back)
        return chain.following(self.spec, self.step)


def standing(store: Store, job_id: str) -> Standing:
    """A job that is gone stands as if it had never been taken."""
    names = ("keys", "task", "phase", "back", "error")
    keys, task, phase, back, error, *others = fields(store, job_id, *names, *_NUMBERS, *_SPEC)
    step, attempt, losses, forgiven = (int(number or 0) for number in others[: len(_NUMBERS)])
    spec = "".join(others[len(_NUMBERS) :])
    place = chain.number_of(back) if phase == "rollback" else None
    tries = max(0, attempt - losses - forgiven - 1)
    return Standing(keys.partition("\n")[0], task, loads(spec or "{}"), step, tries, place, cause_of(error))


def callers(store: Store, ids: Sequence[str]) -> list[tuple[str, str, Spec]]:
    """Id, task and spec of each of these calls; of a submit that melted, the task is '' and the spec is empty."""
    found = zip(ids, fields_of_many(store, ids, "task", *_SPEC), strict=True) if ids else ()
    return [(one, task, loads("".join(spec) or "{}")) for one, (task, *spec) in found]


def scan(store: Store, *names: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The id of each job that is kept, and those of these fields that it has; `state` must be among them."""
    begin = len(store.key("job", ""))
    ids = (name[begin:] for name in _names(store))
    while page := list(islice(ids, _PAGE)):
        for job_id, values in zip(page, fields_of_many(store, page, *names, "past"), strict=True):
            record = {name: value for name, value in zip((*names, "past"), values, strict=True) if value}
            if "state" in record:  # else an alias, or it is gone since
                yield job_id, _unfaded(record)


def _names(store: Store) -> Iterator[str]:
    """A scan may say a name twice."""
    pattern = "".join("\\" + c if c in "*?[]\\^" else c for c in store.key("job", "")) + "*"
    seen: set[str] = set()
    cursor = 0
    while True:
        cursor, names = store.read("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
        fresh = {name.decode() for name in names} - seen
        seen |= fresh
        yield from fresh
        if cursor == 0:
            return
