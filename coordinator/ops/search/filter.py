"""The filter of jobs. It has the same names in Python, on the command line and in the URLs of pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypedDict, get_args

from coordinator.core.jobs import validation
from coordinator.core.jobs.states import BADLY, State
from coordinator.core.store.client import Store
from coordinator.core.store.times import to_ms
from coordinator.errors import InvalidJob
from coordinator.ops.search import when
from coordinator.ops.search.reasons import STATES_OF
from coordinator.ops.search.when import When

STATES = tuple(state for part in get_args(State) for state in (get_args(part) or (part,)))
BAD = "bad"
"""What the filter `state` calls all of BADLY."""


class JobFilter(TypedDict, total=False):
    """Which jobs to find: those for which all given filters hold.

    `state`: one or several; `bad` stands for those of jobs that ended by a fault. `reason`: why the jobs wait, a code
    of `why_summary`, such as `waiting.slot`. `task`: the task's name. `key`: of a lane; with `*` at its end, a prefix
    of keys. `since`, `until`: bounds for a job's end, or for its submit while it is not over, which `when.ms_of` reads:
    an instant, `1h` ago, `10:00`, `today` … `node`: the node on which the job ran last. `error`: a part of the error's
    type or message, or with a colon at its end the whole type (`TimeoutError:`); `text`: a part of an argument; both
    ignore upper and lower case. `ids`: only these jobs; `without`: none of these.
    """

    state: str | Sequence[str] | None
    reason: str | None
    task: str | None
    key: str | None
    since: When | None
    until: When | None
    node: str | None
    error: str | None
    text: str | None
    ids: Sequence[str] | None
    without: Sequence[str] | None


FILTERS = tuple(JobFilter.__annotations__)
LISTS = ("state", "ids", "without")
"""The filters that take several values."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A checked filter. `key`: without a star; `prefix`: True if it had one. `since`, `until`: ms since the epoch.
    `texts`: the filters task, node, error and text, as (name, text). `ids`: None = any.
    """

    states: frozenset[str]
    reason: str
    key: str
    prefix: bool
    since: int
    until: int
    texts: tuple[tuple[str, str], ...]
    ids: tuple[str, ...] | None
    without: frozenset[str]

    @property
    def narrow(self) -> bool:
        """True if the filter names a lane, or a prefix of keys."""
        return bool(self.key) or not self.prefix

    def names(self, key: str) -> bool:
        return key.startswith(self.key) if self.prefix else key == self.key


def read_filter(store: Store, filters: JobFilter) -> Wanted:
    """Check a filter. Raises InvalidJob."""
    unknown = sorted(filters.keys() - set(FILTERS))
    if unknown:
        raise InvalidJob(
            f"no filter {unknown[0]!r}{validation.near(unknown[0], FILTERS)}: there are {', '.join(FILTERS)}"
        )
    for name, value in filters.items():
        if name not in (*LISTS, "since", "until") and not isinstance(value, str | None):
            raise InvalidJob(f"{name} is text, not {validation.shown(value)}")
    reason = filters.get("reason") or ""
    if reason and reason not in STATES_OF:
        raise InvalidJob(f"reason {reason!r}{validation.near(reason, STATES_OF)}: one of {', '.join(STATES_OF)}")
    states = frozenset(states_in(filters)) & frozenset(STATES_OF.get(reason, STATES))
    key = filters.get("key") or "*"
    texts = tuple((name, str(filters[name])) for name in ("task", "node", "error", "text") if filters.get(name))
    since, until = (when.ms_of(store, name, filters.get(name)) for name in ("since", "until"))
    first = validation.stored_lane(key.removesuffix("*"))
    ids = _ids("ids", filters.get("ids"))
    return Wanted(
        states, reason, first, key.endswith("*"), since or 0, 2**53 if until is None else until, texts,
        tuple(dict.fromkeys(ids)) or None, frozenset(_ids("without", filters.get("without"))),
    )  # fmt: skip


def states_in(filters: Mapping[str, object]) -> tuple[str, ...]:
    """Return the states that a filter names, all of them if it names none. Raises InvalidJob."""
    states = filters.get("state") or STATES
    named = tuple(states) if isinstance(states, list | tuple | set | frozenset) else (states,)
    for state in named:
        if state not in (*STATES, BAD):
            near = validation.near(str(state), (*STATES, BAD))
            raise InvalidJob(f"state {state!r}{near}: one of {', '.join((*STATES, BAD))}")
    return tuple(dict.fromkeys(one for state in named for one in (BADLY if state == BAD else (str(state),))))


def pinned(store: Store, filters: JobFilter, at: datetime) -> JobFilter:
    """Return the filter with bounds that do not move: it finds no job that ended, or was submitted, after `at`."""
    wanted, bound = read_filter(store, filters), to_ms(at)
    bounds: JobFilter = {"until": _written(min(wanted.until, bound))}
    if wanted.since:
        bounds["since"] = _written(wanted.since)
    return {**filters, **bounds}


def _written(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _ids(name: str, value: object) -> Sequence[str]:
    if not value:
        return ()
    if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset):
        raise InvalidJob(f"{name} is a list of ids, not {validation.shown(value)}")
    return [validation.utf8(name, one).decode() for one in value]
