"""Finds jobs by a filter. The same names are used in Python, on the command line and in the addresses of pages.

Jobs are found in three parts, one after the other: those that stand in no line yet (scheduled, collected), those in
line, lane by lane in its order, and those that are over, the latest first. A job only ever moves on to a later part, so
that none is left out while pages are turned. Each part is read from an index: no call reads the names of all records.
"""

from __future__ import annotations

import json
import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import chain, islice
from typing import NamedTuple, TypedDict, Unpack, get_args

from coordinator.errors import InvalidJob
from coordinator.jobs import record, validation
from coordinator.jobs.hidden import HIDDEN, Hidden
from coordinator.jobs.ready import id_in, some_ready
from coordinator.jobs.record import TERMINAL, Job
from coordinator.jobs.states import State
from coordinator.store.client import Store
from coordinator.store.reading import FieldReader, number_in
from coordinator.store.times import milliseconds, to_ms
from coordinator.store.wire import Arg

MOST_SEARCHED = 10_000
_PORTION = 500
_IN_LINE = frozenset({"waiting", "ready", "running", "retrying", "parked", "held", "rolling_back"})
_ROLLING = frozenset({"ready", "running", "parked"})  # the states of a record whose rollback is under way
_APART = frozenset({"scheduled", "collected"})
STATES = tuple(state for part in get_args(State) for state in (get_args(part) or (part,)))
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w)")
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_FIELDS = ("state", "phase", "keys", "submitted", "ended", "past")
_RUNS = ("lane-runs", "lane-runs-before")
_End = tuple[int, str]  # when a job ended, in ms, and its id
When = datetime | timedelta | str


class JobFilter(TypedDict, total=False):
    """Which jobs. All of these must hold.

    `state`: one or several. `task`: its name. `key`: of a lane, or how keys begin, where it ends in `*`. `since`,
    `until`: an instant (a datetime, or as ISO 8601, in UTC where that has no zone), or so long ago (`90s`, `15m`, `1h`,
    `2d`, `1w`); of a job's end, or of its submit where it is not over. `node`: where it ran last. `error`: a part of
    the error's type or message, and `text`: a part of an argument; for these two, capitals count as small letters.
    """

    state: str | Sequence[str] | None
    task: str | None
    key: str | None
    since: When | None
    until: When | None
    node: str | None
    error: str | None
    text: str | None


FILTERS = tuple(JobFilter.__annotations__)


@dataclass(frozen=True, slots=True)
class Found:
    """A page of jobs.

    `after`: ask with it for the next page; "" = this is the last one. `searched`: at how many jobs this call looked.
    `complete`: False where it looked at 10,000 and stopped before the page was full, or where more than 10,000 jobs are
    in a state that has no order: there may be more jobs.
    """

    jobs: tuple[Job, ...]
    complete: bool
    searched: int
    after: str = ""


class _Candidate(NamedTuple):
    """A job that an index names. `lane`: in whose line it was met; `score`: there; `ended`: ms."""

    id: str
    ended: int | None = None
    lane: str = ""
    score: float = 0.0

    @property
    def place(self) -> list[str]:
        """Where in its part."""
        if self.lane:
            return [self.lane, repr(self.score), self.id]
        return [self.id] if self.ended is None else [str(self.ended), self.id]


class _Portion(NamedTuple):
    """Candidates that may fit, in their order. `looked`: how many were read for them; `end`: the place of the last."""

    looked: int
    candidates: list[_Candidate]
    end: list[str]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A filter, read. `key` has no star; `since`, `until`: ms."""

    states: frozenset[str]
    key: str
    prefix: bool
    since: int
    until: int
    texts: tuple[tuple[str, str], ...]

    @property
    def narrow(self) -> bool:
        """True if it names lanes."""
        return bool(self.key) or not self.prefix

    def names(self, key: str) -> bool:
        return key.startswith(self.key) if self.prefix else key == self.key


def search(
    store: Store, most: int = 50, after: str = "", hidden: Hidden | None = None, **asked: Unpack[JobFilter]
) -> Found:  # fmt: skip
    """Find the jobs of a JobFilter, at most `most` of them. `text` finds nothing hidden. Raises InvalidJob."""
    ids, complete, searched, after = find(store, most, after, hidden, **asked)
    return Found(tuple(record.read_many(store, ids)), complete, searched, after)


def find(
    store: Store, most: int, after: str, hidden: Hidden | None, **asked: Unpack[JobFilter]
) -> tuple[list[str], bool, int, str]:  # fmt: skip
    """As `search`, and reads no records: the ids, and the other fields of Found."""
    look = _Search(store, _read(store, asked), hidden)
    validation.count("most", most, 1)
    ids: list[str] = []
    searched = 0
    for part, (looked, fitting, end) in look.portions(*_opened(after)):
        searched += looked
        page = fitting[: most - len(ids)]
        ids += [candidate.id for candidate in page]
        if len(ids) == most:
            return ids, not look.partial, searched, _closed(part, page[-1].place)
        if searched >= MOST_SEARCHED:
            return ids, False, searched, _closed(part, end)
    return ids, not look.partial, searched, ""


def count(store: Store, seconds: float, hidden: Hidden | None = None, **asked: Unpack[JobFilter]) -> tuple[int, bool]:
    """Count the jobs of a filter among the first 10,000 that it looks at, for at most so many seconds; True: all."""
    look, ends, number, searched = _Search(store, _read(store, asked), hidden), time.monotonic() + seconds, 0, 0
    for _, (looked, fitting, _) in look.portions():
        number, searched = number + len(fitting), searched + looked
        if searched >= MOST_SEARCHED or time.monotonic() > ends:
            return number, False
    return number, not look.partial


def looked(store: Store, hidden: Hidden | None = None, **asked: Unpack[JobFilter]) -> Iterator[list[str]]:
    """Yield the ids that fit of each portion at which the walk looks. A job that moves on may come twice."""
    for _, portion in _Search(store, _read(store, asked), hidden).portions():
        yield [candidate.id for candidate in portion.candidates]


def living(store: Store) -> Iterator[str]:
    """Yield the id of each job that is not over, as the walk comes to it. One that moves on may come twice."""
    return chain.from_iterable(looked(store, state=[*_APART, *_IN_LINE]))


def _opened(after: str) -> tuple[int, list[str]]:
    if not after:
        return 0, []
    try:
        part, place = json.loads(urlsafe_b64decode(after))
        _PLACES[part](*place)
        return part, place
    except (LookupError, TypeError, ValueError) as error:
        raise InvalidJob(f"after {validation.shown(after)}: give `Found.after` of the page before") from error


# By part, what a place has, as text (`_Candidate.place`). Fails for anything else.
_PLACES: Sequence[Callable[..., object]] = (
    lambda job_id: job_id.encode(),
    lambda key, score, job_id: (key.encode(), float(score), job_id.encode()),
    lambda at, job_id: (int(at), job_id.encode()),
)


def _closed(part: int, place: list[str]) -> str:
    return urlsafe_b64encode(json.dumps([part, place]).encode()).decode()


def _read(store: Store, asked: JobFilter) -> _Wanted:
    unknown = sorted(asked.keys() - set(FILTERS))
    if unknown:
        raise InvalidJob(f"no filter {unknown[0]!r}{validation.near(unknown[0], FILTERS)}: {', '.join(FILTERS)}")
    for name, value in asked.items():
        if name not in ("state", "since", "until") and not isinstance(value, str | None):
            raise InvalidJob(f"{name} is text, not {validation.shown(value)}")
    states = asked.get("state") or STATES
    named = tuple(states) if isinstance(states, list | tuple | set | frozenset) else (states,)
    for state in named:
        if state not in STATES:
            raise InvalidJob(f"state {state!r}{validation.near(state, STATES)}: one of {', '.join(STATES)}")
    key = asked.get("key") or "*"
    texts = tuple((name, str(asked[name])) for name in ("task", "node", "error", "text") if asked.get(name))
    since, until = (_instant(store, name, asked.get(name)) for name in ("since", "until"))
    first = validation.stored_lane(key.removesuffix("*"))
    return _Wanted(frozenset(named), first, key.endswith("*"), since or 0, 2**53 if until is None else until, texts)


def _instant(store: Store, name: str, value: object) -> int | None:
    """Turn `since` or `until`, an instant or a span before now, into ms of Redis' clock. Raises InvalidJob."""
    if value in (None, ""):
        return None
    try:
        if isinstance(value, str) and (span := _SPAN.fullmatch(value.strip())):
            value = timedelta(seconds=float(span[1]) * _UNITS[span[2]])
        if isinstance(value, timedelta):
            return store.now() - milliseconds(value.total_seconds())
        if isinstance(value, datetime):
            return to_ms(value if value.tzinfo else value.astimezone())
        moment = datetime.fromisoformat(str(value))
        return to_ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC))  # as commands and pages print them
    except (OverflowError, ValueError) as error:
        raise InvalidJob(f"{name} {validation.shown(value)}: give an instant, or a span such as 15m, 1h, 2d") from error


class _Search:
    """One search. `partial`: some jobs could not be looked at in an order, and were left out."""

    def __init__(self, store: Store, wanted: _Wanted, hidden: Hidden | None = None) -> None:
        self.store, self.wanted = store, wanted
        self.hidden = hidden or Hidden((), lambda task: ())
        self.partial = False
        self.walks_lines = bool(wanted.states & _IN_LINE) and (wanted.narrow or "waiting" in wanted.states)
        rolling = _ROLLING if "rolling_back" in wanted.states else frozenset()
        narrows = self.walks_lines and not wanted.states >= _IN_LINE
        self.kept_states = wanted.states | rolling if narrows else frozenset()  # as records have them; empty: any
        self.names = (*_FIELDS, *(name for one, _ in wanted.texts for name in _RAW[one] if name != "past"))
        texts = [(one, text.lower()) for one, text in (*wanted.texts, ("keys", wanted.key)) if text]
        self.needles = [(_RAW[one], text) for one, text in texts if one == "keys" or not _WRITTEN.search(text)]

    def portions(self, part: int = 0, place: Sequence[str] = ()) -> Iterator[tuple[int, _Portion]]:
        """Yield the portions behind this place, each with its part, and only with the candidates that fit."""
        parts: Sequence[Callable[[list[str]], Iterator[_Portion]]] = (self._apart, self._in_line, self._over)
        for number in range(part, len(parts)):
            for portion in parts[number](list(place) if number == part else []):
                yield number, portion._replace(candidates=self._fitting(portion.candidates))

    # The three parts: each yields portions behind a place of its own.

    def _apart(self, place: list[str]) -> Iterator[_Portion]:
        """Of states that are sets, without an order: by id."""
        states = self.wanted.states & _APART if self.walks_lines else self.wanted.states - TERMINAL
        ids: set[str] = set()
        for state in states:
            ids |= self._with_state(state)
        yield from self._sifted(_Candidate(job_id) for job_id in sorted(ids) if [job_id] > place)

    def _with_state(self, state: str) -> set[str]:
        if state == "running":
            leases, locks = (self.store.read("ZRANGE", self.store.key(name), 0, -1) for name in ("leases", "locks"))
            return {job_id.decode() for job_id in (*leases, *locks)}
        if state == "ready":
            members = some_ready(self.store, MOST_SEARCHED + 1)
            self.partial |= len(members) > MOST_SEARCHED
            return {*map(id_in, members[:MOST_SEARCHED])}
        cursor, ids = self.store.read("SSCAN", self.store.key("state", state), 0, "COUNT", MOST_SEARCHED)
        self.partial |= cursor != 0
        return {job_id.decode() for job_id in ids}

    def _in_line(self, place: list[str]) -> Iterator[_Portion]:
        """Of lanes by their keys; place: key, score and id."""
        if not self.walks_lines:
            return
        behind = place[1:] or ["-inf", ""]
        for page in self._lanes_from(*place[:1]):
            while page:
                read, looked, stopped, *lines = self.store.look("lines_likely", self.sieve, _PORTION, *behind, *page)
                behind = [text.decode() for text in stopped] or ["-inf", ""]
                end = [page[read], *behind] if stopped else [page[read - 1], "inf", ""]
                found = ((one.decode(), key.decode(), float(score)) for key, line in lines for one, score in line)
                yield _Portion(looked, [_Candidate(job_id, None, lane, score) for job_id, lane, score in found], end)
                page = page[read:]

    def _lanes_from(self, first: str = "") -> Iterator[list[str]]:
        if first or not self.wanted.prefix:
            yield [first or self.wanted.key]
        if self.wanted.prefix:
            yield from pages(self.store, self.wanted.key, first, _PORTION)

    def _over(self, place: list[str]) -> Iterator[_Portion]:
        """By their ends, the latest first; place: the end in ms, and the id."""
        if not self.wanted.states & TERMINAL:
            return
        last = (int(place[0]), str(place[1])) if place else None
        if not self.wanted.prefix:
            found = self._newest(self._runs_before, _run, last)
        elif self.wanted.key and (runs := self._runs_of_prefix()) is not None:
            found = (run for run in runs if last is None or run < last)
        else:
            found = self._newest(self._ended_before, _end, last)
        yield from self._sifted(_Candidate(job_id, at) for at, job_id in found)

    def _newest(
        self, asked: Callable[[_End | None, int], list[Sequence[Arg]]], read: Callable[[list[bytes]], list[_End]],
        last: _End | None,
    ) -> Iterator[_End]:  # fmt: skip
        """Merge some indexes, of which `asked` reads what ended before `last`, or with it."""
        size = _PORTION
        while True:
            replies = self.store.read_many(asked(last, size), atomic=True)
            every = sorted(dict.fromkeys(end for reply in replies for end in read(reply)), reverse=True)
            fresh = [end for end in every[:size] if last is None or end < last]
            yield from fresh
            if len(every) < size:
                return
            last, size = (fresh[-1], size) if fresh else (last, 2 * size)

    def _ended_before(self, last: _End | None, size: int) -> list[Sequence[Arg]]:
        kinds = (f"ended{kind}:{state}" for state in self.wanted.states & TERMINAL for kind in ("", "-before"))
        bounds = (last[0] if last else self.wanted.until, self.wanted.since)
        return [("ZREVRANGEBYSCORE", self.store.key(kind), *bounds, "WITHSCORES", "LIMIT", 0, size) for kind in kinds]

    def _runs_before(self, last: _End | None, size: int) -> list[Sequence[Arg]]:
        key, wanted = self.wanted.key, self.wanted
        top = f"({key}\0{last[0]:013}\0{last[1]}" if last else f"({key}\0{wanted.until + 1:013}"
        bounds = (top, f"[{key}\0{wanted.since:013}")
        return [("ZREVRANGEBYLEX", self.store.key(kind), *bounds, "LIMIT", 0, size) for kind in _RUNS]

    def _runs_of_prefix(self) -> list[_End] | None:
        """The runs of all lanes whose keys begin so, the latest first; None where they are too many."""
        first = self.wanted.key.encode()
        bounds = (b"[" + first, b"(" + first + b"\xff")
        kinds = [self.store.key(kind) for kind in _RUNS]
        if sum(self.store.read_many([("ZLEXCOUNT", kind, *bounds) for kind in kinds])) > MOST_SEARCHED:
            return None
        replies = self.store.read_many([("ZRANGEBYLEX", kind, *bounds) for kind in kinds], atomic=True)
        runs = {run for reply in replies for run in _run(reply)}
        return sorted((run for run in runs if self.wanted.since <= run[0] <= self.wanted.until), reverse=True)

    # What fits.

    @cached_property
    def sieve(self) -> str:
        """What Redis needs to know, so that it can leave out most of the records that do not fit; "" = nothing."""
        if not (self.needles or self.kept_states):
            return ""
        names = [*dict.fromkeys(("state", *(name for fields, _ in self.needles for name in fields)))]
        places = [([names.index(name) for name in fields], needle) for fields, needle in self.needles]
        states = {"states": dict.fromkeys(self.kept_states, 1)} if self.kept_states else {}
        return json.dumps({"names": names, "needles": places, **states})

    def _sifted(self, candidates: Iterator[_Candidate]) -> Iterator[_Portion]:
        while portion := list(islice(candidates, _PORTION)):
            likely = portion
            if self.sieve:
                places = self.store.look("jobs_likely", self.sieve, *(candidate.id for candidate in portion))
                likely = [portion[place] for place in places]
            yield _Portion(len(portion), likely, portion[-1].place)

    def _fitting(self, likely: list[_Candidate]) -> list[_Candidate]:
        records = record.fields_of_many(self.store, [candidate.id for candidate in likely], *self.names)
        return [candidate for candidate, values in zip(likely, records, strict=True) if self._fits(candidate, values)]

    def _fits(self, candidate: _Candidate, values: list[str]) -> bool:
        fields = record.unfaded({name: value for name, value in zip(self.names, values, strict=True) if value})
        if "state" not in fields:
            return False
        state, keys = record.state_of(fields), fields.get("keys", "").split("\n")
        if state in STATES or len(self.wanted.states) < len(STATES):  # else it is damaged
            if state not in self.wanted.states or (candidate.ended is None) == (state in TERMINAL):
                return False
            if candidate.ended is None and not candidate.lane and self.walks_lines and state not in _APART:
                return False  # it stands in line since
        named = [key for key in keys if self.wanted.names(key)]
        if (candidate.lane in keys[1:] and named[0] != candidate.lane) or not (named or candidate.lane):
            return False
        at = number_in(fields.get("submitted" if candidate.ended is None else "ended", ""))
        if candidate.ended is not None and at not in (None, candidate.ended):
            return False  # it was tried again since
        timely = self.wanted.since <= (at or candidate.ended or 0) <= self.wanted.until
        return timely and all(_CHECKS[name](fields, text, self.hidden) for name, text in self.wanted.texts)


def pages(store: Store, prefix: str, after: str, size: int) -> Iterator[list[str]]:
    """Yield pages of the keys of lanes that begin with `prefix` and come behind `after`, by their bytes."""
    first, last = validation.utf8("prefix", prefix), validation.utf8("after", after)
    name, begin, end = store.key("lanes"), b"[" + first, b"(" + first + b"\xff"
    if last >= first and last:
        begin = b"(" + last
    while True:
        page = store.read("ZRANGEBYLEX", name, begin, end, "LIMIT", 0, size)
        yield [key.decode() for key in page]
        if len(page) < size:
            return
        begin = b"(" + page[-1]


def scored(reply: list[bytes] | list[tuple[bytes, float]]) -> list[tuple[bytes, float]]:
    """Each member and its score; the protocol's version decides whether Redis pairs them."""
    flat = not reply or isinstance(reply[0], bytes)
    pairs = zip(reply[::2], reply[1::2], strict=True) if flat else reply
    return [(member, float(score)) for member, score in pairs]  # type: ignore[arg-type,misc]


def _end(reply: list[bytes]) -> list[_End]:
    return [(int(score), job_id.decode()) for job_id, score in scored(reply)]


def _run(reply: list[bytes]) -> list[_End]:
    runs = (member.decode().rsplit("\0", 2) for member in reply)
    return [(int(at), job_id) for _, at, job_id in runs]


def _has_error(fields: dict[str, str], text: str) -> bool:
    error = FieldReader(fields).get("error", record.cause_of, None) if fields["state"] != "succeeded" else None
    return error is not None and any(text in str(error.get(name, "")).casefold() for name in ("type", "message"))


def _has_argument(fields: dict[str, str], text: str, hidden: Hidden) -> bool:
    reader = FieldReader(fields)
    spec = record.spec_of(reader)
    steps = spec.get("steps") or [spec]
    values: list[object] = [hidden.value(reader.json("merge_args"))]
    own = "" if fields.get("phase") else fields.get("task", "")  # of a job that was rolled back it is the rollback's
    for number, step in enumerate(steps):
        task, args = step.get("task") or own, step.get("args") or ()
        values += [hidden.args(task, args, chained=number > 0), hidden.value(step.get("kwargs"))]
    return any(text in leaf.casefold() for leaf in _leaves(values))


def _leaves(value: object) -> Iterator[str]:
    """The texts in a value that are not hidden, and its other parts as JSON has them."""
    if isinstance(value, dict | list | tuple):
        for part in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from _leaves(part)
    elif value is not None and value is not HIDDEN:
        yield value if isinstance(value, str) else json.dumps(value, default=str)


# The fields in which a text stands as it is, unless it is written otherwise in JSON.
_RAW = {
    "task": ("task",), "node": ("node", "past"), "error": ("error",), "text": ("spec", "merge_args", "task"),
    "keys": ("keys",),
}  # fmt: skip
_WRITTEN = re.compile(r"""[^ -~]|["\\/]|^(lost|los|ost|lo|os|st|[lost])$""")  # `Lost` stands for a mere text
_CHECKS: dict[str, Callable[[dict[str, str], str, Hidden], bool]] = {
    "task": lambda fields, text, _: fields.get("task") == text,
    "node": lambda fields, text, _: fields.get("node") == text,
    "error": lambda fields, text, _: _has_error(fields, text.casefold()),
    "text": lambda fields, text, hidden: _has_argument(fields, text.casefold(), hidden),
}
