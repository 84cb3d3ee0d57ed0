"""Reads which jobs have waited longest, and for what. Looks at a bounded part of the lanes and of the ready jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from coordinator.jobs import record
from coordinator.lanes.view import MARKS, PAUSED
from coordinator.store.client import Store

_CLASSES, _GROUPS, _LANES, _HELD = 100, 16, 500, 100
REASONS = ("slot", "lane", "paused", "held")
_INSTANTS = ("submitted", "joined", "readied", "started")


class Wait(NamedTuple):
    """A job that waits. `reason`: slot (it is ready), lane, paused (its lane is) or held. `seconds`: for how long."""

    seconds: float
    job_id: str
    reason: str
    key: str
    task: str


def longest_waits(store: Store) -> dict[str, Wait]:
    """The longest wait for each reason, among the next jobs of the first 500 lanes, and of each group of ready jobs."""
    asked = [*_ready(store), *_in_line(store), *_held(store)]
    if not asked:
        return {}
    names = ("state", "keys", "task", *_INSTANTS)
    jobs = record.fields_of_many(store, [job_id for job_id, _ in asked], *names)
    now, longest = store.now(), dict[str, Wait]()
    for (job_id, reason), (state, keys, task, *instants) in zip(asked, jobs, strict=True):
        since = max((int(at) for at in instants if at.isdecimal()), default=now)
        wait = Wait(max(0.0, (now - since) / 1000), job_id, reason, keys.partition("\n")[0], task)
        if state in _STATES[reason] and wait > longest.get(reason, wait._replace(seconds=-1)):
            longest[reason] = wait
    return longest


_STATES = {"slot": ("ready",), "lane": ("waiting",), "paused": ("waiting",), "held": ("held",)}


def _ready(store: Store) -> Iterator[tuple[str, str]]:
    classes = [kind.decode() for kind in store.read("SMEMBERS", store.key("ready"))][:_CLASSES]
    listed = store.read_many([("LRANGE", store.key("ready", kind), 0, _GROUPS - 1) for kind in classes])
    groups = [f"{group.decode()}\n{kind}" for kind, page in zip(classes, listed, strict=True) for group in page]
    for head in store.read_many([("ZRANGE", store.key("group", group), 0, 0) for group in groups]):
        yield from ((job_id.decode(), "slot") for job_id in head)


def _in_line(store: Store) -> Iterator[tuple[str, str]]:
    """The first two of each line, behind its marks: the second waits for the first, or both for the lane."""
    keys = [key.decode() for key in store.read("ZRANGE", store.key("lanes"), 0, _LANES - 1)]
    lines: Sequence[list[bytes]] = store.read_many([("ZRANGE", store.key("line", key), 0, 3) for key in keys])
    for line in lines:
        reason = "paused" if PAUSED in line else "lane"
        yield from ((job_id.decode(), reason) for job_id in [one for one in line if one not in MARKS][:2])


def _held(store: Store) -> Iterator[tuple[str, str]]:
    _, page = store.read("SSCAN", store.key("state", "held"), 0, "COUNT", _HELD)
    yield from ((job_id.decode(), "held") for job_id in page[:_HELD])
