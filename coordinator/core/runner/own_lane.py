"""Refuses two mistakes of a job: to wait for a task in the job's own lane, which cannot begin before the job ends; and
to continue with a step for another lane, which the job does not hold.

Redis detects a ring of jobs that wait for each other. It knows nothing of those tasks of a canvas that are not yet
published, so the process of the job records which results depend on a task in the job's own lane.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Protocol, cast

from celery import Celery

from coordinator.core.jobs.arguments import in_canvas
from coordinator.core.jobs.current import Behind, CurrentJob, working
from coordinator.core.jobs.spec import Signature
from coordinator.core.lanes.client import LaneClient
from coordinator.errors import StoreRefused, StoreUnavailable, WouldDeadlock

WAY_OUT = "give its tasks another key, submit them without waiting, or replace the task by a chain of its next steps"


class _LaneFinder(Protocol):
    def lanes_of(self, part: Signature, before: int) -> tuple[str, ...] | None: ...


def lanes_in(app: Celery, signature: Signature, before: int = 0) -> Iterator[tuple[Signature, tuple[str, ...] | None]]:
    """Yield each task of `signature` with the names of its lanes: () for a call without lanes, None if no key can be
    made of the arguments, as where it depends on the result of a task that has not run yet. `before`: how many results
    `signature` gets in front of its own arguments, when the task before it has ended.
    """
    pairs: list[tuple[Signature, tuple[str, ...] | None]] = []
    keyed: _LaneFinder = app.coordinator._keyed_tasks
    in_canvas(signature, before, lambda call, behind: pairs.append((call, keyed.lanes_of(call, behind))))
    yield from pairs


def out_of_lane(app: Celery, keys: Collection[str], call: Signature, other: Signature) -> str:
    """Say why a job with the lanes `keys` cannot replace its call `call` by `other`; "" if it can, because it holds
    the lanes of `other`, or because its keys were named at the submit and do not depend on the arguments.
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
    """Find the tasks of a message that cannot end before a task in one of the lanes `keys` has run.

    `headers`, `body`: of the message, as Celery's `before_task_publish` passes them; its tasks are its own, the rest of
    its chain and the body of its chord. Returns the task and the lane that each of them depends on, by the task's id.
    """
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
    """Raise WouldDeadlock if one of the results `ids` depends on a task that cannot begin before `job` ends.

    `now`: True if the body of the job waits for the results itself; False if the job parks until they have ended, where
    Redis checks again for a ring.
    """
    for task_id in ids:
        if behind := job.behind.get(task_id or ""):
            why = f"{task_id} waits for {behind.task} in the job's own lane {behind.lane!r}: {WAY_OUT}"
            raise WouldDeadlock(f"it would wait for itself: {why}")


@contextmanager
def waiting_for(ids: Sequence[str]) -> Iterator[None]:
    """Register in Redis, for the length of this context, that the current job waits for the results `ids`. Raises
    WouldDeadlock if one of these waits for that job. Does nothing outside a job.
    """
    job = working.get()
    with ExitStack() as waits:
        if job is not None:
            check_lanes(job, ids, now=True)
            for task_id in ids:
                find_ring = waits.enter_context(cast(LaneClient, job.lanes).awaited(task_id))
                with suppress(StoreUnavailable, StoreRefused):
                    find_ring()
        yield
