"""Reads the record of a job, the hash `{prefix}:job:<id>`. No other module reads records.

`read` and `fields` read one record, `read_many` and `fields_of_many` several in one round trip.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast, get_args

from coordinator.errors import UnknownJob
from coordinator.jobs import chain
from coordinator.jobs.history import Event, course_of, events_of
from coordinator.jobs.spec import ErrorRecord, Spec, StepSpec
from coordinator.jobs.states import Over, State
from coordinator.jobs.validation import shown_lane, storable
from coordinator.store.client import Store
from coordinator.store.reading import FieldReader, json_in, number_in, reader_of, text_in
from coordinator.store.times import milliseconds
from coordinator.store.values import ActNote
from coordinator.store.wire import Arg

_PAGE = 500
_PIECE = 64  # bytes of a piece of a long text
_ACTS = ("retried", "paused", "resumed", "moved", "retargeted")
_INSTANTS = ("submitted", "readied", "taken", "started", "ended")
_NUMBERS = ("step", "attempt", "losses", "forgiven")

StepArguments = tuple[tuple[object, ...], dict[str, object]]

TERMINAL = frozenset(get_args(Over))


@dataclass(frozen=True, slots=True)
class Job:
    """A job's record at one moment. Times are aware UTC datetimes, None = not yet.

    `step`: the number of a chain's step at work; args and kwargs are those of the step. `attempt`: how often the job
    was tried; the next step of a chain is no further try. `error`: why the last attempt failed; None of a job that
    succeeded. `rollback`: done or failed, once it was run; `fault`: why it failed. `acts`: what an operator did to the
    job or its lane (retried, moved, retargeted, paused, resumed): {why, by, at (ms)}; of a job that was cancelled or
    released, `error` says that. `readied`: when its turn came, last; from `submitted` until then it waited for its
    lanes, and then for a slot. `steps`: the tasks of a chain; empty for a single task. `awaits`: the ids of the
    sub-results for which it is parked. `course`: what happened to it; of what no instant tells,
    the last 50 events. `damaged`: fields of the record that cannot be read, and count as missing. `parent`: the job
    that submitted it as its own; `by`: the author of its submit, or the host, as far as 14 characters say it; both
    until it succeeded.
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
    error: ErrorRecord | None
    progress: tuple[int, int] | None
    step: int = 0
    priority: int = 0
    exclusive: bool = False
    rollback: str | None = None
    fault: ErrorRecord | None = None
    acts: dict[str, ActNote] = field(default_factory=dict)
    readied: datetime | None = None
    steps: tuple[str, ...] = ()
    awaits: tuple[str, ...] = ()
    course: tuple[Event, ...] = ()
    damaged: tuple[str, ...] = ()
    parent: str | None = None
    by: str | None = None

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


def totals(counted: Mapping[bytes, bytes]) -> dict[tuple[str, str], int]:
    """The number of each task's jobs that were `created`, ended in each outcome, and of `retries`, `losses`, `faults`.

    All since the beginning, by what and task, from the hash `counts`. A record may be gone; its count stays.
    """
    pairs = ((text_in(name).partition("\n"), number_in(number) or 0) for name, number in counted.items())
    return {(what, task): number for (what, _, task), number in pairs}


def counts(store: Store) -> dict[str, int]:
    """The number of jobs in each state, ended in each outcome, `created`; and of `retries`, `losses`, `faults`."""
    return counts_in(store.look("counts_read"))


def counts_in(pairs: Sequence[Any]) -> dict[str, int]:
    """The reply of the step `counts_read`."""
    return {name.decode(): number for name, number in zip(pairs[::2], pairs[1::2], strict=True)}


def spec_of(reader: FieldReader) -> Spec:
    return reader.json("spec", dict) or Spec()


def _known(state: State) -> State:
    if state not in get_args(State):
        raise ValueError(state)
    return state


def _keys(text: str) -> tuple[str, ...]:
    keys = tuple(text.split("\n"))
    if not all(storable(shown_lane(key)) for key in keys):
        raise ValueError(text)
    return keys


def _progress(text: str) -> tuple[int, int]:
    done, _, total = text.partition("/")
    return int(done), int(total)


def parse(job_id: str, record: Mapping[bytes, bytes]) -> Job:
    """Make a Job of its hash. A damaged record raises nothing: `Job.damaged` names the fields."""
    text = unfaded(dict(reader_of(record).record))
    reader = FieldReader(text, "keys", "state")
    number = reader.get("step", int, 0)
    spec = chain.detoured(spec_of(reader), number, reader.json("instead", list) or [])
    args, kwargs = _arguments(reader, spec, number)
    state = reader.get("state", lambda _: _known(state_of(text)), cast(State, text.get("state", "")))
    submitted, readied, taken, started, ended = (reader.instant(name) for name in _INSTANTS)
    readied = readied or (submitted if taken or state == "ready" else None)
    node, attempt = text.get("node"), tries(reader.get("attempt", int, 0), number, spec)
    error = reader.get("error", cause_of, None) if state != "succeeded" else None
    return Job(
        id=job_id,
        keys=reader.get("keys", _keys, ("",)),
        state=state,
        task=text.get("task", ""),
        args=args, kwargs=kwargs, attempt=attempt,
        losses=reader.get("losses", int, 0),
        node=node,
        fence=reader.get("fence", int, None),
        submitted=submitted, taken=taken, started=started, ended=ended,
        result=reader.json("result"),
        error=error,
        progress=reader.get("progress", _progress, None),
        step=number,
        priority=reader.get("priority", int, 0),
        exclusive="exclusive" in text,
        rollback=text.get("rollback"),
        fault=reader.get("fault", cause_of, None),
        acts={name: act for name in _ACTS if (act := reader.json(name, dict))},
        readied=readied,
        steps=tuple(str(step.get("task") or "a canvas") for step in spec.get("steps", ())),
        awaits=_awaited(reader) if text.get("state") == "parked" else (),
        course=course_of((submitted, readied, started, ended), state, (node, attempt), error, _noted(reader, spec)),
        parent=text.get("parent"), by=text.get("by"),
        damaged=tuple(dict.fromkeys([*reader.damaged, *(["past"] if "past" in text else [])])),
    )  # fmt: skip


def _noted(reader: FieldReader, spec: Spec) -> list[Event]:
    return reader.get("course", lambda course: list(events_of(course, spec.get("first", 0))), list[Event]())


def _awaited(reader: FieldReader) -> tuple[str, ...]:
    return tuple(part_id for part_id in (reader.json("handles", dict) or {}).get("ids", ()) if isinstance(part_id, str))


def _arguments(reader: FieldReader, spec: Spec, number: int) -> StepArguments:
    def laid(_: str) -> StepArguments:
        step = chain.laid(spec, number)
        return tuple(step.get("args", ())), dict(step.get("kwargs", {}))

    nothing: StepArguments = ((), {})
    args, kwargs = reader.get("spec", laid, nothing)
    return args, kwargs | ({} if "rest" in spec else reader.json("merge_args", dict) or {})


def tries(claims: int, number: int, spec: Spec) -> int:
    """The number of attempts of a job at its `number`th step: a claim that ended a step well does not count."""
    return claims - number + spec.get("first", 0)


def state_of(record: Mapping[str, str]) -> State:
    """The state of a job: rolling_back while its rollback is ready, runs or is parked."""
    state = record.get("state", "")
    rolling = record.get("phase") == "rollback" and state in ("ready", "running", "parked")
    return cast(State, "rolling_back" if rolling else state)


def unfaded(record: dict[str, str]) -> dict[str, str]:
    """Unpack `past`, the one text that keeps the fields of a success (functions/rules/retention.lua).

    A damaged `past` stays as it is.
    """
    try:
        submitted, taken, started, ended, fence, attempt, node = record["past"].split(" ", 6)
        instants = {"taken": taken, "started": started, "ended": ended}
        since = int(submitted)
        fields = {
            "submitted": submitted,
            **{name: str(since + int(ms)) for name, ms in instants.items()},
            "fence": str((since + int(started)) * 1000 + int(fence)),
            "attempt": attempt,
            "node": node,
        }
    except (KeyError, ValueError):
        return record
    return {name: value for name, value in record.items() if name != "past"} | fields


def cause_of(text: str | None) -> ErrorRecord | None:
    """Read an error; that of a lost run is a mere sentence."""
    error = cast("str | ErrorRecord", json_in((str, dict), text)) if text else None
    return {"type": "Lost", "message": error} if isinstance(error, str) else error


def read(store: Store, job_id: str) -> dict[bytes, bytes]:
    """Read all fields of a record. Raises UnknownJob. The record of a coalesced submit has only `alias`."""
    record = store.read("HGETALL", store.key("job", job_id), job_id=job_id)
    if not record:
        raise UnknownJob(job_id)
    return _whole(record)


def _whole(record: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Join the texts that lie in pieces (functions/rules/record.lua)."""
    found = dict(record)
    for name in (b"spec", b"result", b"past"):
        piece, number = record.get(name, b""), 0
        while len(piece) == _PIECE:
            number += 1
            piece = record.get(b"%b%d" % (name, number), b"")
            found[name] += piece
    return found


def read_many(store: Store, ids: Sequence[str]) -> Iterator[Job]:
    """Read the jobs of these ids, in one round trip; leaves out ids without a record."""
    records = store.read_many([("HGETALL", store.key("job", job_id)) for job_id in ids])
    for job_id, record in zip(ids, records, strict=True):
        if record:
            yield parse(job_id, _whole(record))


def keep_on(store: Store, ids: Collection[str], seconds: float) -> None:
    """Keep the records of these jobs, which are over, for at least so many seconds."""
    store.read_many([("PEXPIRE", store.key("job", job_id), milliseconds(seconds), "GT") for job_id in ids])


def app_of(store: Store, job: Job) -> str:
    """The app that sends the job's result: that of its class, or of its last node where the record keeps no class."""
    places = (("job", job.id), "class"), (("node", job.node or ""), "app")
    kind, app = store.read_many([("HGET", store.key(*name), field) for name, field in places])
    return text_in(kind).partition("\n")[0] or text_in(app)


def fields(store: Store, job_id: str, *names: str) -> list[str]:
    """Read these fields of one record, but none that may lie in pieces; a missing field is empty."""
    values = store.read("HMGET", store.key("job", job_id), *names)
    return [text_in(value) for value in values]


def fields_of_many(store: Store, ids: Sequence[str], *names: str) -> list[list[str]]:
    """Read these fields of each record, in one round trip; a missing field is empty. A step reads 500 records."""
    replies = store.read_many(reading(store, ids, *names)) if ids else ()
    return fields_in(replies, *names)


def reading(store: Store, ids: Sequence[str], *names: str) -> list[Sequence[Arg]]:
    """The commands for `Store.read_many` that read these fields; `fields_in` reads their replies."""
    pages = (ids[start : start + _PAGE] for start in range(0, len(ids), _PAGE))
    return [store.looking("jobs_read", "\n".join(names), *page) for page in pages]


def fields_in(replies: Sequence[Any], *names: str) -> list[list[str]]:
    records = [values for reply in replies for values in reply]
    return [[text_in(value) for value in values or [None] * len(names)] for values in records]


def owned(store: Store, job_id: str, token: str) -> bool:
    """True while this token owns the job."""
    current, state, condemned = fields(store, job_id, "token", "state", "condemned")
    return current == token and state in ("running", "ready") and condemned != current


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a job stands: its key, its task, the step at work, and how many attempts raised before the last.

    `back`: the number of the rollback's step at work, None where the job is not rolled back. `error`: why it is.
    """

    key: str
    task: str
    spec: Spec
    step: int
    tries: int
    back: int | None
    error: ErrorRecord | None

    @property
    def following(self) -> StepSpec | None:
        """The step after the one at work."""
        if self.back is not None:
            return chain.following(self.spec["rollback"], self.back)
        return chain.following(self.spec, self.step)


def standing(store: Store, job_id: str) -> Standing:
    """Read how far a job has come: its step, its attempts, its last error. One without a record has not begun."""
    names = ("keys", "task", "phase", "back", "error", "instead", "spec", *_NUMBERS)
    [values] = fields_of_many(store, [job_id], *names)
    reader = FieldReader(dict(zip(names, values, strict=True)))
    step, attempt, losses, forgiven = (reader.get(name, int, 0) for name in _NUMBERS)
    key, task, phase = values[0].partition("\n")[0], values[1], values[2]
    spec = chain.detoured(spec_of(reader), step, reader.json("instead", list) or [])
    place = reader.get("back", chain.number_of, 0) if phase == "rollback" else None
    tries = max(0, attempt - losses - forgiven - 1)
    return Standing(key, task, spec, step, tries, place, reader.get("error", cause_of, None))


def callers(store: Store, ids: Sequence[str]) -> list[tuple[str, str, Spec]]:
    """Read id, task and spec of each of these calls; of a coalesced submit, task and spec are empty."""
    calls = zip(ids, fields_of_many(store, ids, "task", "spec"), strict=True)
    return [(job_id, task, spec_of(FieldReader({"spec": spec}))) for job_id, (task, spec) in calls]
