"""Reads the record of a job, the hash `{prefix}:job:<id>` in Redis. No other module reads records.

`read` and `fields` read one record, `read_many` and `fields_of_many` several in one round trip.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypedDict, cast, get_args

from coordinator.core.jobs import chain, collecting
from coordinator.core.jobs.after import Wait, waits_in
from coordinator.core.jobs.collecting import Collecting, collecting_in
from coordinator.core.jobs.history import Event, course_of, events_of
from coordinator.core.jobs.options import Use
from coordinator.core.jobs.spec import ErrorRecord, Spec, StepSpec
from coordinator.core.jobs.states import Over, State
from coordinator.core.jobs.uses import uses_in
from coordinator.core.jobs.validation import shown_lane, storable
from coordinator.core.store.client import Store
from coordinator.core.store.reading import FieldReader, json_in, number_in, reader_of, text_in
from coordinator.core.store.steps import counts_read, jobs_read
from coordinator.core.store.times import milliseconds
from coordinator.core.store.values import ActNote
from coordinator.core.store.wire import Arg
from coordinator.errors import UnknownJob

_PAGE = 500
_SCANNED = 5000  # names of keys that a search for ids looks at in one round trip
_PIECE = 64  # bytes of each field over which a long text is spread, see `_whole`
_ACTS = ("retried", "paused", "resumed", "moved", "retargeted")
_INSTANTS = ("submitted", "readied", "taken", "started", "ended")
MOST_DEPENDANTS = 100  # of one job that are read
_NUMBERS = ("step", "attempt", "losses", "forgiven")

StepArguments = tuple[tuple[object, ...], dict[str, object]]

TERMINAL = frozenset(get_args(Over))
_BAD = frozenset(state.encode() for state in TERMINAL - {"succeeded"})  # such a job may hold others


@dataclass(frozen=True, slots=True)
class Job:
    """The record of a job at the moment when it was read. Times are datetimes in UTC, None = not yet.

    `step`: the number of the current step of a chain, from 0; `args` and `kwargs` are those of that step. `attempt`:
    how often the job was tried; the next step of a chain is no further try. `losses`: how many attempts were lost with
    their process or node. `taken`: when the job was claimed for the first time, `started`: when its last attempt began.
    `error`: why the last attempt failed; None if the job succeeded. `progress`: (done, total), as the task reported it.
    `rollback`: `done` or `failed`, None until a rollback has run; `fault`: the error of a failed rollback. `acts`: by
    kind (retried, moved, retargeted, paused, resumed) the last act of an operator on the job or its lane, {why, by, at
    (ms)}; a cancel or release is in `error`. `uses`: what it uses of quotas, until it succeeded; `lacks`: the quota for
    which it waits in front of all its lanes. `readied`: when the job last came to the front of all its lanes and had
    its quotas; after that, it waited only for a slot. `steps`: the task names of a chain; empty for a single task.
    `awaits`: the ids of the sub-results for which the job is parked; `event`: the event for which it is. `course`: what
    happened to the job, of which the record keeps the last 50 events beside those instants. `damaged`: fields of the
    record that cannot be read, and count as missing. `parent`: the id of the job whose task submitted this one; `by`:
    the author of the submit, or the host, cut to 14 characters; both are dropped when the job has succeeded. `after`:
    the jobs and events that this one was to run after, and for which of them it waits still; `on_failure_of`: fail, run
    or hold, where there are some. `dependants`: the ids of the first 100 jobs that wait for this one, or are held by
    it; `dependants_count`: of all. `collects`: of a job that collects calls, or did: while it takes more, `args` and
    `kwargs` are those of its first call, or of the newest for how="latest".
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
    uses: dict[str, Use] = field(default_factory=dict)
    lacks: str | None = None
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
    event: str | None = None
    after: tuple[Wait, ...] = ()
    on_failure_of: str | None = None
    dependants: tuple[str, ...] = ()
    dependants_count: int = 0
    collects: Collecting | None = None

    @property
    def key(self) -> str:
        """The first key of the job; "" for a job in no lane."""
        return self.keys[0] if self.keys else ""

    @property
    def over(self) -> bool:
        """True if the job has ended for good; a held job has not."""
        return self.state in TERMINAL

    @property
    def waited_for(self) -> bool:
        """True if `wait(job.id)` would return at once: the job is over, or it is held until an operator decides."""
        return self.over or self.state == "held"


def totals(counted: Mapping[bytes, bytes]) -> dict[tuple[str, str], int]:
    """Read the totals since the installation began, by (event, task), from the Redis hash `counts`.

    Events: `created`, each outcome in which a job ended, `retries`, `losses` and `faults` (rollbacks that failed). The
    totals include jobs whose records have expired.
    """
    pairs = ((text_in(name).partition("\n"), number_in(number) or 0) for name, number in counted.items())
    return {(event, task): number for (event, _, task), number in pairs}


def ids_like(store: Store, begin: str, end: str, most: int, seconds: float) -> list[str]:
    """Find at most `most` jobs whose ids begin and end so. No index has ids by their letters: this looks through the
    names of all keys, for at most `seconds`.
    """
    head, ends = store.key("job", ""), time.monotonic() + seconds
    pattern = "".join(f"\\{one}" if one in "*?[]\\^-" else one for one in f"{head}{begin}") + "*"
    found, cursor = set[str](), 0
    while len(found) < most and time.monotonic() < ends:
        cursor, names = store.read("SCAN", cursor, "MATCH", pattern, "COUNT", _SCANNED)
        ids = (name.decode(errors="replace").removeprefix(head) for name in names)
        found.update(job_id for job_id in ids if job_id.endswith(end))
        if not cursor:
            break
    return sorted(found)[:most]


def counts(store: Store) -> dict[str, int]:
    """Count the jobs in each state now, and since the beginning those `created` and ended in each outcome, and the
    `retries`, `losses` and `faults` (rollbacks that failed).
    """
    return counts_in(counts_read.look(store))


def counts_in(pairs: Sequence[Any]) -> dict[str, int]:
    """Read the names and numbers in the reply of the step `counts_read` in Redis, as `counts` returns them."""
    return {name.decode(): number for name, number in zip(pairs[::2], pairs[1::2], strict=True)}


def spec_of(reader: FieldReader) -> Spec:
    return reader.json("spec", dict) or Spec()


def _known(state: State) -> State:
    if state not in get_args(State):
        raise ValueError(state)
    return state


def _keys(text: str) -> tuple[str, ...]:
    keys = tuple(text.split("\n")) if text else ()
    if not all(storable(shown_lane(key)) for key in keys):
        raise ValueError(text)
    return keys


def _progress(text: str) -> tuple[int, int]:
    done, _, total = text.partition("/")
    return int(done), int(total)


class Ties(NamedTuple):
    """What Redis keeps beside the record of a job: the causes for which it waits, its first dependants, and how many
    there are.
    """

    open: frozenset[str] = frozenset()
    dependants: tuple[str, ...] = ()
    total: int = 0


class _Tied(TypedDict):
    after: tuple[Wait, ...]
    on_failure_of: str | None
    dependants: tuple[str, ...]
    dependants_count: int


def _is_tied(record: Mapping[bytes, bytes]) -> bool:
    state = record.get(b"state", b"")
    blocked = b"after" in record and state in (b"blocked", b"held")
    return blocked or b"blocks" in record or state in _BAD


def ties_of(store: Store, records: Mapping[str, Mapping[bytes, bytes]]) -> dict[str, Ties]:
    """Read, in one round trip, what Redis keeps beside these records, by id; those without anything are left out."""
    tied = [job_id for job_id, record in records.items() if _is_tied(record)]
    if not tied:
        return {}
    asked: list[Sequence[Arg]] = []
    for job_id in tied:
        waiting, held = store.key("dependants", job_id), store.key("held-after", job_id)
        asked += [("SMEMBERS", store.key("causes", job_id)), ("ZCARD", waiting), ("ZCARD", held)]
        asked += [("ZRANGE", name, 0, MOST_DEPENDANTS - 1) for name in (waiting, held)]
    replies = iter(store.read_many(asked))
    found = {}
    for job_id, causes, waits, holds, *ids in zip(tied, *[replies] * 5, strict=True):
        first = dict.fromkeys(one.decode() for part in ids for one in part)
        open_ = frozenset(cause.decode() for cause in causes)
        found[job_id] = Ties(open_, tuple(first)[:MOST_DEPENDANTS], waits + holds)
    return found


def parse(job_id: str, record: Mapping[bytes, bytes], ties: Ties = Ties()) -> Job:  # noqa: B008 - it is immutable
    """Make a Job from the fields of its hash. A damaged record raises no error: `Job.damaged` names the fields that
    cannot be read. `ties`: see `ties_of`.
    """
    text = unfaded(dict(reader_of(record).record))
    reader = FieldReader(text, *([] if text.get("keys") == "" else ["keys"]), "state")
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
        keys=() if text.get("keys") == "" else reader.get("keys", _keys, ("",)),
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
        step=number, priority=reader.get("priority", int, 0),
        uses=reader.get("uses", uses_in, dict[str, Use]()), lacks=text.get("lack"),
        rollback=text.get("rollback"), collects=_collected(reader, text.get("equal")),
        fault=reader.get("fault", cause_of, None),
        acts={name: act for name in _ACTS if (act := reader.json(name, dict))},
        readied=readied,
        steps=tuple(str(step.get("task") or "a canvas") for step in spec.get("steps", ())),
        awaits=_awaited(reader) if text.get("state") == "parked" else (), event=text.get("event"),
        course=course_of((submitted, readied, started, ended), state, (node, attempt), error, _noted(reader, spec)),
        parent=text.get("parent"), by=text.get("by"),
        **_tied(reader, ties),
        damaged=tuple(dict.fromkeys([*reader.damaged, *(["past"] if "past" in text else [])])),
    )  # fmt: skip


def _tied(reader: FieldReader, ties: Ties) -> _Tied:
    nothing: tuple[str | None, tuple[Wait, ...]] = (None, ())
    policy, after = reader.get("after", lambda text: waits_in(text, ties.open), nothing)
    return _Tied(after=after, on_failure_of=policy, dependants=ties.dependants, dependants_count=ties.total)


def _collected(reader: FieldReader, equal: str | None) -> Collecting | None:
    called = reader.get("called", int, 1)
    return reader.get("collect", partial(collecting_in, called=called, equal=equal), None)


def _noted(reader: FieldReader, spec: Spec) -> list[Event]:
    return reader.get("course", lambda course: list(events_of(course, spec.get("first", 0))), list[Event]())


def _awaited(reader: FieldReader) -> tuple[str, ...]:
    return tuple(part_id for part_id in (reader.json("handles", dict) or {}).get("ids", ()) if isinstance(part_id, str))


def _arguments(reader: FieldReader, spec: Spec, number: int) -> StepArguments:
    def call(_: str) -> StepArguments:
        step = chain.step_spec(spec, number)
        return tuple(step.get("args", ())), dict(step.get("kwargs", {}))

    def of_calls(text: str) -> StepArguments:
        args, kwargs = collecting.given(text)
        return tuple(args), kwargs

    nothing: StepArguments = ((), {})
    args, kwargs = reader.get("spec", call, nothing)
    return (args, kwargs) if "rest" in spec else reader.get("calls", of_calls, (args, kwargs))


def tries(claims: int, number: int, spec: Spec) -> int:
    """How often a job that is at step `number` was tried: its `claims` without one for each step that has succeeded."""
    return claims - number + spec.get("first", 0)


def state_of(record: Mapping[str, str]) -> State:
    """The state of a job as people see it: `rolling_back` while the record says that a rollback is ready, runs or is
    parked, else the state in the record.
    """
    state = record.get("state", "")
    rolling = record.get("phase") == "rollback" and state in ("ready", "running", "parked")
    if state == "ready" and record.get("lack"):  # it was started before, and keeps the front of its lanes meanwhile
        return "waiting"
    return cast(State, "rolling_back" if rolling else state)


def unfaded(record: dict[str, str]) -> dict[str, str]:
    """Return the record with its field `past` unpacked into the fields that it stands for. To save memory, a record
    keeps these as one text once the job has succeeded (functions/rules/retention.lua).

    A record without `past`, or where `past` is damaged, is returned unchanged.
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
    """Read the field `error` or `fault` of a record; None where it is empty. For a lost run, the field has a sentence
    in place of an exception, which becomes an error of the type `Lost`.
    """
    error = cast("str | ErrorRecord", json_in((str, dict), text)) if text else None
    return {"type": "Lost", "message": error} if isinstance(error, str) else error


def read(store: Store, job_id: str) -> dict[bytes, bytes]:
    """Read all fields of the record of a job. Raises UnknownJob where there is none. The record of a coalesced submit
    has only `alias`, the id of the other job.
    """
    record = store.read("HGETALL", store.key("job", job_id), job_id=job_id)
    if not record:
        raise UnknownJob(job_id)
    return _whole(record)


def _whole(record: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Join the texts that a record keeps in pieces, over several fields (functions/rules/record.lua): Redis keeps a
    hash in its compact form (listpack) only while each value has at most 64 bytes.
    """
    whole = dict(record)
    for name in (b"spec", b"result", b"past"):
        piece, number = record.get(name, b""), 0
        while len(piece) == _PIECE:
            number += 1
            piece = record.get(b"%b%d" % (name, number), b"")
            whole[name] += piece
    return whole


def read_many(store: Store, ids: Sequence[str]) -> Iterator[Job]:
    """Read the records of these jobs in one round trip, and yield a Job for each id that has a record."""
    records = store.read_many([("HGETALL", store.key("job", job_id)) for job_id in ids])
    ties = ties_of(store, dict(zip(ids, records, strict=True)))
    for job_id, record in zip(ids, records, strict=True):
        if record:
            yield parse(job_id, _whole(record), ties.get(job_id, Ties()))


def keep_on(store: Store, ids: Collection[str], seconds: float) -> None:
    """Extend the expiry of the records of ended jobs to `seconds` from now, where they would expire earlier."""
    store.read_many([("PEXPIRE", store.key("job", job_id), milliseconds(seconds), "GT") for job_id in ids])


def app_of(store: Store, job: Job) -> str:
    """The name of the app that sends the job's result: the app of its routing class, or of its last node where the
    record has no routing class.
    """
    places = (("job", job.id), "class"), (("node", job.node or ""), "app")
    kind, app = store.read_many([("HGET", store.key(*name), field) for name, field in places])
    return text_in(kind).partition("\n")[0] or text_in(app)


def fields(store: Store, job_id: str, *names: str) -> list[str]:
    """Read the fields `names` of one record; a missing field gives "". Not for `spec`, `result` and `past`, which are
    stored in pieces.
    """
    values = store.read("HMGET", store.key("job", job_id), *names)
    return [text_in(value) for value in values]


def fields_of_many(store: Store, ids: Sequence[str], *names: str) -> list[list[str]]:
    """Read the fields `names` of each of these records, in one round trip; a missing field or record gives "". Redis
    reads 500 records at a time, and answers others between.
    """
    replies = store.read_many(reading(store, ids, *names)) if ids else ()
    return fields_in(replies, *names)


def reading(store: Store, ids: Sequence[str], *names: str) -> list[Sequence[Arg]]:
    """Make the Redis commands by which `Store.read_many` reads these fields; `fields_in` reads the replies."""
    pages = (ids[start : start + _PAGE] for start in range(0, len(ids), _PAGE))
    return [jobs_read.looking(store, "\n".join(names), *page) for page in pages]


def fields_in(replies: Sequence[Any], *names: str) -> list[list[str]]:
    """Read the replies to the commands of `reading`: for each record the values of the fields `names`."""
    records = [values for reply in replies for values in reply]
    return [[text_in(value) for value in values or [None] * len(names)] for values in records]


def owned(store: Store, job_id: str, token: str) -> bool:
    """True while the claim with this token is the one that may act for the job: no other claim has followed,
    and no supervisor has marked it as stopped.
    """
    current, state, condemned = fields(store, job_id, "token", "state", "condemned")
    return current == token and state in ("running", "ready") and condemned != current


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a job has come, as its next attempt needs to know. `key`: the first key of the job.

    `step`: the number of the current step, from 0. `tries`: how many attempts before the last raised an error. `back`:
    the number of the current step of the rollback, None if the job is not being rolled back. `error`: why
    the last attempt failed, or why the job is rolled back; None if there is no error.
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
        """The step after the current one, in the rollback where that runs; None if the current one is the last."""
        if self.back is not None:
            return chain.following(self.spec["rollback"], self.back)
        return chain.following(self.spec, self.step)


def standing(store: Store, job_id: str) -> Standing:
    """Read from Redis how far a job has come. A job whose record has expired counts as not begun."""
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
    """Read id, task and spec of each of these submits, which were skipped for a job or coalesced into it. Task and spec
    are empty where Redis keeps no call of a keyed task.
    """
    calls = zip(ids, fields_of_many(store, ids, "task", "spec"), strict=True)
    return [(job_id, task, spec_of(FieldReader({"spec": spec}))) for job_id, (task, spec) in calls]
