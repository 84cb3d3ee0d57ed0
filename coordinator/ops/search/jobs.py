"""Finds jobs by a filter.

Jobs are searched in three parts, one after the other: the jobs that stand in no line yet (scheduled, collected,
collecting, blocked, or held by a cause); the jobs without a key, and those in line, lane by lane; and the jobs that are
over, the latest first. A job only ever moves on to a later part, so that none is missed between two pages. Each part is
read from an index: no search scans all records.
"""

from __future__ import annotations

import json
import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import NamedTuple, Unpack

from coordinator.core.jobs import collecting, record, validation
from coordinator.core.jobs.hidden import HIDDEN, Hidden
from coordinator.core.jobs.options import Arguments
from coordinator.core.jobs.ready import id_in, some_ready
from coordinator.core.jobs.record import TERMINAL, Job
from coordinator.core.store.client import Store
from coordinator.core.store.reading import FieldReader, number_in
from coordinator.core.store.steps import jobs_likely, lines_likely
from coordinator.core.store.wire import Arg
from coordinator.errors import InvalidJob
from coordinator.ops.search.filter import STATES, JobFilter, Wanted, read_filter
from coordinator.ops.search.reasons import FIELDS, Reasons

MOST_SEARCHED = 10_000
_PORTION = 500
_IN_LINE = frozenset({"waiting", "ready", "running", "retrying", "parked", "held", "rolling_back"})
_ROLLING = frozenset({"ready", "running", "parked"})  # the states of a record whose rollback is under way
_LACKING = frozenset({"ready"})  # of a record that was started before, and lacks a quota (record.state_of)
_APART = frozenset({"scheduled", "collected", "collecting", "blocked"})
_FIELDS = ("state", "phase", "lack", "keys", "submitted", "ended", "past", "after", "taken")
_RUNS = ("lane-runs", "lane-runs-before")
_End = tuple[int, str]  # when a job ended, in ms, and its id


@dataclass(frozen=True, slots=True)
class Found:
    """A page of jobs.

    `after`: pass it to `jobs(after=…)` for the next page; "" = this is the last page. `searched`: how many jobs this
    call read. `complete`: False where the search stopped after 10,000 jobs, before the page was full, or where more
    than 10,000 jobs are in a state whose index has no order: there may be more jobs.
    """

    jobs: tuple[Job, ...]
    complete: bool
    searched: int
    after: str = ""


class _Candidate(NamedTuple):
    """A job that an index names. `lane`: the key of the line in which the job was found, "" = the one of the jobs
    without a key, None = no line; `score`: the job's place there; `ended`: ms since the epoch, None = it is not over.
    `named`: the filter has the id.
    """

    id: str
    ended: int | None = None
    lane: str | None = None
    score: float = 0.0
    named: bool = False

    @property
    def place(self) -> list[str]:
        """The place of the job in its part of the search, from which the next page goes on."""
        if self.named:
            return [self.id]
        if self.lane is not None:
            return [self.lane, repr(self.score), self.id]
        return [self.id] if self.ended is None else [str(self.ended), self.id]


class _Portion(NamedTuple):
    """A portion of a search: jobs that may match the filter, in order. `scanned`: how many jobs the portion read;
    `end`: the place of the last of these.
    """

    scanned: int
    candidates: list[_Candidate]
    end: list[str]


def search(
    store: Store, most: int = 50, after: str = "", hidden: Hidden | None = None, **filters: Unpack[JobFilter]
) -> Found:  # fmt: skip
    """Return a page of at most `most` jobs that match the filters, behind `after`. Raises InvalidJob.

    `hidden`: values that the filter `text` must not find; None = it finds all.
    """
    ids, complete, searched, after = find(store, most, after, hidden, **filters)
    return Found(tuple(record.read_many(store, ids)), complete, searched, after)


def find(
    store: Store, most: int, after: str, hidden: Hidden | None, **filters: Unpack[JobFilter]
) -> tuple[list[str], bool, int, str]:  # fmt: skip
    """Find the ids of matching jobs, as `search` does, but read no whole records. Returns the ids, and the values of
    `Found.complete`, `Found.searched` and `Found.after`.
    """
    walk = Search(store, read_filter(store, filters), hidden)
    validation.count("most", most, 1)
    ids: list[str] = []
    searched = 0
    for part, (scanned_now, fitting, end) in walk.portions(*_opened(after)):
        searched += scanned_now
        page = fitting[: most - len(ids)]
        ids += [candidate.id for candidate in page]
        if len(ids) == most:
            return ids, not walk.partial, searched, _closed(part, page[-1].place)
        if searched >= MOST_SEARCHED:
            return ids, False, searched, _closed(part, end)
    return ids, not walk.partial, searched, ""


def count(store: Store, seconds: float, hidden: Hidden | None = None, **filters: Unpack[JobFilter]) -> tuple[int, bool]:
    """Count the jobs that match, among the first 10,000 that are read, for at most `seconds`. Returns the number, and
    True if it counts all jobs that match.
    """
    walk, ends, number, searched = Search(store, read_filter(store, filters), hidden), time.monotonic() + seconds, 0, 0
    for _, (scanned_now, fitting, _) in walk.portions():
        number, searched = number + len(fitting), searched + scanned_now
        if searched >= MOST_SEARCHED or time.monotonic() > ends:
            return number, False
    return number, not walk.partial


def scanned(store: Store, hidden: Hidden | None = None, **filters: Unpack[JobFilter]) -> Iterator[list[str]]:
    """Yield lists of ids of jobs that match, one list for each portion of the scan. A job whose state changes meanwhile
    may come twice.
    """
    for _, portion in Search(store, read_filter(store, filters), hidden).portions():
        yield [candidate.id for candidate in portion.candidates]


def living(store: Store) -> Iterator[str]:
    """Yield the id of each job that is not over. A job whose state changes meanwhile may come twice."""
    return chain.from_iterable(scanned(store, state=[*_APART, *_IN_LINE]))


def _opened(after: str) -> tuple[int, list[str]]:
    if not after:
        return 0, []
    try:
        part, place = json.loads(urlsafe_b64decode(after))
        _PLACES[part](*place)
        return part, place
    except (LookupError, TypeError, ValueError) as error:
        raise InvalidJob(f"after {validation.shown(after)}: give `Found.after` of the page before") from error


# Checks of the place in `Found.after`, one for each part: they raise unless it is as `_Candidate.place` writes it.
_PLACES: Sequence[Callable[..., object]] = (
    lambda job_id: job_id.encode(),
    lambda key, score, job_id: (key.encode(), float(score), job_id.encode()),
    lambda at, job_id: (int(at), job_id.encode()),
    lambda job_id: job_id.encode(),
)


def _closed(part: int, place: list[str]) -> str:
    return urlsafe_b64encode(json.dumps([part, place]).encode()).decode()


class Search:
    """One search for jobs. `partial`: True once jobs were left out, since a state without an order has too many."""

    def __init__(self, store: Store, wanted: Wanted, hidden: Hidden | None = None) -> None:
        self.store, self.wanted = store, wanted
        self.hidden = hidden or Hidden((), lambda task: ())
        self.partial = False
        self.walks_lines = bool(wanted.states & _IN_LINE) and (wanted.narrow or "waiting" in wanted.states)
        others = _ROLLING if "rolling_back" in wanted.states else frozenset()
        others |= _LACKING if "waiting" in wanted.states else frozenset()
        narrows = self.walks_lines and not wanted.states >= _IN_LINE
        self.kept_states = wanted.states | others if narrows else frozenset()  # as records have them; empty: any
        read = [*_FIELDS, *(name for one, _ in wanted.texts for name in _RAW[one]), *(FIELDS if wanted.reason else ())]
        self.names = tuple(dict.fromkeys(read))
        self.reasons = Reasons(store)
        texts = [(one, text.lower()) for one, text in (*wanted.texts, ("keys", wanted.key)) if text]
        texts = [(one, text.removesuffix(":") if one == "error" else text) for one, text in texts]
        self.needles = [(_RAW[one], text) for one, text in texts if one == "keys" or not _WRITTEN.search(text)]

    def portions(self, part: int = 0, place: Sequence[str] = ()) -> Iterator[tuple[int, _Portion]]:
        """Yield (number of the part, portion) for all that follows `place` in `part`, with only the jobs that match."""
        parts: Sequence[Callable[[list[str]], Iterator[_Portion]]]
        parts = (self._apart, self._in_line, self._over, self._named)
        first, behind = (part, 3) if self.wanted.ids is None else (3, 4)
        for number in range(first, behind):
            for portion in parts[number](list(place) if number == part else []):
                yield number, portion._replace(candidates=self._fitting(portion.candidates))

    # The parts of a search: each method yields the portions behind `place`, which has another form in each part.

    def _named(self, place: list[str]) -> Iterator[_Portion]:
        """Search the jobs that the filter names by their ids. `place`: an id."""
        ids = self.wanted.ids or ()
        left = ids[ids.index(place[0]) + 1 :] if place and place[0] in ids else ids
        for begin in range(0, len(left), _PORTION):
            portion = left[begin : begin + _PORTION]
            records = record.fields_of_many(self.store, portion, "ended", "keys", "state")
            found = [
                _Candidate(job_id, number_in(ended) if state in TERMINAL else None, self._lane(keys), named=True)
                for job_id, (ended, keys, state) in zip(portion, records, strict=True)
            ]
            yield _Portion(len(portion), found, [portion[-1]])

    def _lane(self, keys: str) -> str:
        return next(filter(self.wanted.names, keys.split("\n")), "")

    def _apart(self, place: list[str]) -> Iterator[_Portion]:
        """Search the states whose index is a set without order; yield their jobs sorted by id. `place`: an id."""
        states = self.wanted.states & (_APART | {"held"}) if self.walks_lines else self.wanted.states - TERMINAL
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
        """Search the jobs in line, lane by lane in the order of the keys. `place`: key, score and id."""
        if not self.walks_lines:
            return
        behind = place[1:] or ["-inf", ""]
        for page in self._lanes_from(*place[:1]):
            while page:
                read, scanned_now, stopped, *lines = lines_likely.look(self.store, self.sieve, _PORTION, *behind, *page)
                behind = [text.decode() for text in stopped] or ["-inf", ""]
                end = [page[read], *behind] if stopped else [page[read - 1], "inf", ""]
                found = ((one.decode(), key.decode(), float(score)) for key, line in lines for one, score in line)
                yield _Portion(
                    scanned_now, [_Candidate(job_id, None, lane, score) for job_id, lane, score in found], end
                )
                page = page[read:]

    def _lanes_from(self, first: str | None = None) -> Iterator[list[str]]:
        if first is not None or not self.wanted.narrow or not self.wanted.prefix:
            yield [self.wanted.key if first is None else first]  # the jobs without a key stand in a line without one
        if self.wanted.prefix:
            yield from pages(self.store, self.wanted.key, first or "", _PORTION)

    def _over(self, place: list[str]) -> Iterator[_Portion]:
        """Search the jobs that are over, the latest first. `place`: the end in ms, and the id."""
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
        """Merge indexes of ended jobs into one sequence, the latest first, from `last` on (None: from the newest).

        `asked`: returns the commands that read a number of entries from `last` on; `read`: parses one reply.
        """
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
        """Return the ended jobs of all lanes whose keys begin with the wanted prefix, the latest first; None if there
        are more than 10,000.
        """
        first = self.wanted.key.encode()
        bounds = (b"[" + first, b"(" + first + b"\xff")
        kinds = [self.store.key(kind) for kind in _RUNS]
        if sum(self.store.read_many([("ZLEXCOUNT", kind, *bounds) for kind in kinds])) > MOST_SEARCHED:
            return None
        replies = self.store.read_many([("ZRANGEBYLEX", kind, *bounds) for kind in kinds], atomic=True)
        runs = {run for reply in replies for run in _run(reply)}
        return sorted((run for run in runs if self.wanted.since <= run[0] <= self.wanted.until), reverse=True)

    # Which jobs match the filter.

    @cached_property
    def sieve(self) -> str:
        """JSON for the Redis functions, which leave out most records that do not match; "" = they leave out none."""
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
                places = jobs_likely.look(self.store, self.sieve, *(candidate.id for candidate in portion))
                likely = [portion[place] for place in places]
            yield _Portion(len(portion), likely, portion[-1].place)

    def _fitting(self, likely: list[_Candidate]) -> list[_Candidate]:
        records = record.fields_of_many(self.store, [candidate.id for candidate in likely], *self.names)
        fitting = list[tuple[_Candidate, dict[str, str]]]()
        for candidate, values in zip(likely, records, strict=True):
            fields = record.unfaded({name: value for name, value in zip(self.names, values, strict=True) if value})
            if self._fits(candidate, fields):
                fitting.append((candidate, fields))
        if not self.wanted.reason:
            return [candidate for candidate, _ in fitting]
        codes = self.reasons.codes([(record.state_of(fields), fields) for _, fields in fitting])
        return [one for (one, _), code in zip(fitting, codes, strict=True) if code == self.wanted.reason]

    def _fits(self, candidate: _Candidate, fields: dict[str, str]) -> bool:
        if "state" not in fields or candidate.id in self.wanted.without:
            return False
        state, keys = record.state_of(fields), fields.get("keys", "").split("\n")
        if state in STATES or len(self.wanted.states) < len(STATES):  # else it is damaged, and any state is wanted
            if state not in self.wanted.states or (candidate.ended is None) == (state in TERMINAL):
                return False
            if candidate.ended is None and candidate.lane is None and self.walks_lines and not _is_apart(state, fields):
                return False  # it stands in line
        named = [key for key in keys if self.wanted.names(key)]
        if (candidate.lane in keys[1:] and named[0] != candidate.lane) or not (named or candidate.lane):
            return False
        at = number_in(fields.get("submitted" if candidate.ended is None else "ended", ""))
        if candidate.ended is not None and at not in (None, candidate.ended):
            return False  # the job was retried, and has ended again, since the index was read
        timely = self.wanted.since <= (at or candidate.ended or 0) <= self.wanted.until
        return timely and all(_CHECKS[name](fields, text, self.hidden) for name, text in self.wanted.texts)


def _is_apart(state: str, fields: Mapping[str, str]) -> bool:
    """True for a job that stands in no line yet. One that is held by a cause has never been claimed."""
    return state in _APART or (state == "held" and "after" in fields and "taken" not in fields)


def pages(store: Store, prefix: str, after: str, size: int) -> Iterator[list[str]]:
    """Yield pages of `size` keys of lanes: those that begin with `prefix` and come behind `after`, sorted by bytes."""
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
    """Return the members of a sorted set with their scores. A RESP3 reply has pairs, a RESP2 reply alternates both."""
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
    if error is None or text.endswith(":"):
        return error is not None and f"{error.get('type', '')}:".casefold() == text
    return any(text in str(error.get(name, "")).casefold() for name in ("type", "message"))


def _has_argument(fields: dict[str, str], text: str, hidden: Hidden) -> bool:
    reader = FieldReader(fields)
    spec = record.spec_of(reader)
    steps = spec.get("steps") or [spec]
    own = "" if fields.get("phase") else fields.get("task", "")  # after a rollback, the field has the rollback's task
    nothing: Arguments = ([], {})
    of_calls = reader.get("calls", collecting.given, nothing)
    values: list[object] = [hidden.args(own, of_calls[0]), hidden.value(of_calls[1])]
    for number, step in enumerate(steps):
        task, args = step.get("task") or own, step.get("args") or ()
        values += [hidden.args(task, args, chained=number > 0), hidden.value(step.get("kwargs"))]
    return any(text in leaf.casefold() for leaf in _leaves(values))


def _leaves(value: object) -> Iterator[str]:
    """Yield the texts in a nested value, without hidden ones, and its other scalars as JSON."""
    if isinstance(value, dict | list | tuple):
        for part in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from _leaves(part)
    elif value is not None and value is not HIDDEN:
        yield value if isinstance(value, str) else json.dumps(value, default=str)


# Filter -> the record's fields that contain the wanted text literally, unless JSON escapes it.
_RAW = {
    "task": ("task",), "node": ("node", "past"), "error": ("error",), "text": ("spec", "calls", "task"),
    "keys": ("keys",),
}  # fmt: skip
# Texts that a matching record may not contain literally: JSON may escape them, or the error type "Lost" is not stored.
_WRITTEN = re.compile(r"""[^ -~]|["\\/]|^(lost|los|ost|lo|os|st|[lost])$""")
_CHECKS: dict[str, Callable[[dict[str, str], str, Hidden], bool]] = {
    "task": lambda fields, text, _: fields.get("task") == text,
    "node": lambda fields, text, _: fields.get("node") == text,
    "error": lambda fields, text, _: _has_error(fields, text.casefold()),
    "text": lambda fields, text, hidden: _has_argument(fields, text.casefold(), hidden),
}
