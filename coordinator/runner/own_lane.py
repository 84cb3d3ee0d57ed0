"""Keeps a job from waiting for a task in its own lane, which could begin only after the job, and from going on in
another lane, which it does not hold.

Redis detects the ring where a job waits for a job. It does not see a canvas whose part in the job's lane is still to be
published, so the job itself remembers which results wait for such a part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Protocol, cast

from celery import Celery

from coordinator.errors import StoreRefused, StoreUnavailable, WouldDeadlock
from coordinator.jobs.arguments import in_canvas
from coordinator.jobs.current import Behind, CurrentJob, working
from coordinator.jobs.record import fields
from coordinator.jobs.spec import Signature
from coordinator.lanes.client import LaneClient

WAY_OUT = "give its tasks another key, submit them without waiting, or replace the task by a chain of its next steps"


class _LaneFinder(Protocol):
    def lanes_of(self, part: Signature, before: int) -> tuple[str, ...] | None: ...


def lanes_in(app: Celery, signature: Signature, before: int = 0) -> Iterator[tuple[Signature, tuple[str, ...] | None]]:
    """Each task of a signature with its lanes, which the app's keyed tasks know."""
    pairs: list[tuple[Signature, tuple[str, ...] | None]] = []
    keyed: _LaneFinder = app.coordinator._keyed_tasks
    in_canvas(signature, before, lambda call, behind: pairs.append((call, keyed.lanes_of(call, behind))))
    yield from pairs


def out_of_lane(app: Celery, keys: Collection[str], call: Signature, other: Signature) -> str:
    """Say why a job with these keys cannot go on from `call` with `other`: "" where it can, as its lanes are those of
    `other`, too, or were named by its submit.
    """
    keyed: _LaneFinder = app.coordinator._keyed_tasks
    own, lanes = keyed.lanes_of(call, 0), keyed.lanes_of(other, 0)
    if not own or not {*own} <= {*keys} or (lanes is not None and {*lanes} <= {*keys}):
        return ""
    key = "no key can be made of its new arguments" if lanes is None else f"its new arguments make {_list(lanes)}"
    return (
        f"{key}, and the job holds only {_list(keys)}: call the task with them instead, which goes through their lane, "
        "or be replaced by that call (self.replace)"
    )


def _list(keys: Collection[str]) -> str:
    return ", ".join(f"the key {key!r}" for key in keys)


def behind_own(app: Celery, keys: Collection[str], headers: Mapping[str, object], body: object) -> dict[str, Behind]:
    """The ids, among what a message starts now or later, that wait for a task in one of these lanes."""
    args, kwargs, embed = body if isinstance(body, list | tuple) and len(body) == 3 else ((), {}, {})
    nested = cast(Mapping[str, object], headers.get("headers") or {})
    options = {"task_id": headers["id"], "headers": {**headers, **nested}}
    first = {"task": headers["task"], "args": args, "kwargs": kwargs, "options": options}
    parts = [(first, 0), *((part, 1) for part in (*reversed(embed.get("chain") or ()), embed.get("chord")) if part)]
    behind: dict[str, Behind] = {}
    own: tuple[str, str] | None = None
    for part, before in parts:
        for task, lanes in lanes_in(app, cast(Signature, part), before):
            mine = [(task["task"], lane) for lane in lanes or () if lane in keys]
            own = own or next(iter(mine), None)
            if own:
                seen = bool(mine) and part is not embed.get("chord")
                behind[(task.get("options") or {}).get("task_id", "")] = Behind(*own, seen)
    return behind


def check_lanes(job: CurrentJob, ids: Collection[str | None], now: bool = False) -> None:
    """Raises WouldDeadlock where one of these results waits for a task that cannot begin before the job ends.

    `now`: the body waits, and nobody looks for a ring later.
    """
    lanes = cast(LaneClient, job.lanes)
    for task_id in ids:
        if behind := job.behind.get(task_id or ""):
            seen = fields(lanes.store, task_id or "", "state") != [""] if now else behind.seen
            if seen and lanes.lane(behind.lane, 1).limit > 1:
                continue
            why = f"{task_id} waits for {behind.task} in the job's own lane {behind.lane!r}: {WAY_OUT}"
            raise WouldDeadlock(f"it would wait for itself: {why}")


@contextmanager
def waiting_for(ids: Sequence[str]) -> Iterator[None]:
    """Register that the body of a job waits for these results. Raises WouldDeadlock if they wait for that job."""
    job = working.get()
    with ExitStack() as waits:
        if job is not None:
            check_lanes(job, ids, now=True)
            for task_id in ids:
                look = waits.enter_context(cast(LaneClient, job.lanes).awaited(task_id))
                with suppress(StoreUnavailable, StoreRefused):
                    look()
        yield
