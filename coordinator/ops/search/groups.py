"""Counts the jobs that a filter finds, by their state, error, task or tenant."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, Unpack, get_args

from coordinator.core.jobs import record, validation
from coordinator.core.jobs.hidden import Hidden
from coordinator.core.jobs.record import TERMINAL
from coordinator.core.store.client import Store
from coordinator.core.store.reading import FieldReader
from coordinator.ops.search.filter import STATES, JobFilter, read_filter
from coordinator.ops.search.jobs import Search

By = Literal["state", "error", "task", "tenant"]
BY: tuple[By, ...] = get_args(By)
_NAMES = ("state", "phase", "lack", "error", "task", "keys", "ended", "past", "taken")


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs that have the same state, type of error, task or tenant. `name`: that, "" = they have none. `where`: the
    filters that find them, {} = no filter does. `example`: the id of the one that was found first, the latest of those
    that are over; `text`: the message of its error, "" = it has none; `at`: its end, None = it is not over.
    """

    name: str
    count: int
    where: Mapping[str, str]
    example: str
    text: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Groups:
    """The jobs that a filter finds, by one thing, the largest group first. `jobs`: their number. `complete`: False
    where the time was too short to count all: then each number is "at least".
    """

    by: By
    rows: tuple[Group, ...]
    jobs: int
    complete: bool


def grouped(
    store: Store, by: By, seconds: float, hidden: Hidden | None = None, **filters: Unpack[JobFilter]
) -> Groups:  # fmt: skip
    """Count the jobs that match for at most `seconds`. A tenant is the first part of a job's first key, before its
    first `/`. Raises InvalidJob.
    """
    validation.one_of("by", by, BY)
    seconds = validation.span("seconds", seconds)
    wanted = read_filter(store, filters)
    if by == "state" and not any(value for name, value in filters.items() if name != "state"):
        return _of_states(store, wanted.states)
    walk, ends = Search(store, wanted, hidden), time.monotonic() + seconds
    counts, first, complete = Counter[str](), dict[str, Group](), True
    for _, (_, candidates, _) in walk.portions():
        ids = [candidate.id for candidate in candidates]
        for job_id, values in zip(ids, record.fields_of_many(store, ids, *_NAMES), strict=True):
            fields = record.unfaded({name: value for name, value in zip(_NAMES, values, strict=True) if value})
            group = _group(by, job_id, fields)
            counts[group.name] += 1
            first.setdefault(group.name, group)
        if time.monotonic() > ends:
            complete = False
            break
    rows = tuple(replace(first[name], count=count) for name, count in counts.most_common())
    return Groups(by, rows, counts.total(), complete and not walk.partial)


def _group(by: By, job_id: str, fields: dict[str, str]) -> Group:
    state, reader = record.state_of(fields) if "state" in fields else "", FieldReader(fields)
    cause = reader.get("error", record.cause_of, None) if state != "succeeded" else None
    error, says = (str(cause.get("type") or ""), str(cause.get("message") or "")) if cause else ("", "")
    key = fields.get("keys", "").split("\n")[0]
    name: str = state
    if by == "state":
        where = {"state": name}
    elif by == "error":
        name, where = error, {"error": f"{error}:"}
    elif by == "task":
        name = fields.get("task", "")
        where = {"task": name}
    else:
        name = validation.shown_lane(key).partition("/")[0] + "/" * ("/" in key)
        where = {"key": f"{name}*" if "/" in key else name}
    at = reader.instant("ended") if state in TERMINAL else None
    return Group(name, 1, where if name else {}, job_id, says, at)


def _of_states(store: Store, states: frozenset[str]) -> Groups:
    """Count the jobs of these states by the sizes of the indexes: exact, however many there are."""
    kept, clock = store.settings, store.clock()
    over = [state for state in STATES if state in states and state in TERMINAL]
    since = {one: clock.wall - 1000 * (kept.keep_success if one == "succeeded" else kept.keep_failure) for one in over}
    kinds = [(f"ended{kind}:{one}", since[one]) for one in over for kind in ("", "-before")]
    numbers = store.read_many([("ZCOUNT", store.key(name), int(at), "+inf") for name, at in kinds]) if kinds else []
    counts = {one: sum(numbers[2 * place : 2 * place + 2]) for place, one in enumerate(over)}
    counts |= {one: number for one, number in record.counts(store).items() if one in states and one not in TERMINAL}
    rows = [Group(one, number, {"state": one}, "") for one, number in Counter(counts).most_common() if number]
    return Groups("state", tuple(rows), sum(one.count for one in rows), complete=True)
