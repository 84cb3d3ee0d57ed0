"""Plans what becomes of the jobs that are to run after those that an act ends or revives (`after`).

It goes down the graph as the functions in Redis do (rules/dependants.lua): a job that fails with its cause is a cause
itself.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from coordinator.core.jobs.after import waits_in
from coordinator.core.jobs.record import fields_of_many
from coordinator.core.store.client import Store
from coordinator.core.store.wire import Arg

MOST = 10_000  # dependants that a plan counts; then it stops
COUNTS = 0.5  # seconds after which it stops, too
_PORTION = 500


@dataclass(slots=True)
class Downstream:
    """What becomes of dependants. `counts`: by what becomes of them, `failed`, `held` or `goes on`. `freed`: those that
    go on, since all that they waited for has ended. `complete`: False where counting stopped early.
    """

    counts: Counter[str] = field(default_factory=Counter)
    freed: list[str] = field(default_factory=list)
    complete: bool = True


def downstream(store: Store, ended: Iterable[str], stop: float | None = None) -> Downstream:
    """Follow the graph from jobs that end without success. `stop`: of `time.monotonic()`, None = in half a second."""
    found, ends = Downstream(), time.monotonic() + COUNTS if stop is None else stop
    seen, queue, open_ = {*ended}, deque(dict.fromkeys(ended)), dict[str, set[str]]()
    while queue:
        if len(seen) > MOST or time.monotonic() > ends:
            found.complete = False
            break
        causes = [queue.popleft() for _ in range(min(len(queue), _PORTION))]
        pairs = _dependants(store, causes, MOST)
        policies = _policies(store, [one for _, one in pairs if one not in seen])
        _read_open(store, [one for _, one in pairs if policies.get(one) == "run" and one not in open_], open_)
        for cause, one in pairs:
            if one in seen or one not in policies:
                continue
            if policies[one] == "run":
                open_[one].discard(cause)
                if open_[one]:
                    continue
                found.freed.append(one)
            seen.add(one)
            found.counts[{"fail": "failed", "hold": "held", "run": "goes on"}[policies[one]]] += 1
            if policies[one] == "fail":
                queue.append(one)
    return found


def held_by(store: Store, causes: Sequence[str]) -> int:
    """Count the jobs that these hold: they go on once the cause has succeeded after all."""
    return sum(store.read_many([("ZCARD", store.key("held-after", cause)) for cause in causes])) if causes else 0


def _dependants(store: Store, causes: Sequence[str], most: int) -> list[tuple[str, str]]:
    """Pairs of a cause and a job that waits for it."""
    asked: list[Sequence[Arg]] = [("ZRANGE", store.key("dependants", cause), 0, most - 1) for cause in causes]
    replies = zip(causes, store.read_many(asked), strict=True)
    return [(cause, one.decode()) for cause, ids in replies for one in ids]


def _policies(store: Store, ids: Sequence[str]) -> dict[str, str]:
    """What each of these is to do where a cause fails; those that wait no longer, or are held already,
    are left out.
    """
    found = zip(ids, fields_of_many(store, ids, "state", "after"), strict=True)
    return {one: waits_in(after)[0] for one, (state, after) in found if state == "blocked" and after}


def _read_open(store: Store, ids: Sequence[str], open_: dict[str, set[str]]) -> None:
    unread = list(dict.fromkeys(ids))
    if unread:
        replies = store.read_many([("SMEMBERS", store.key("causes", one)) for one in unread])
        open_.update((one, {*map(bytes.decode, causes)}) for one, causes in zip(unread, replies, strict=True))
