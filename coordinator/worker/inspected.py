"""Shows jobs in Celery's `inspect` like tasks, with the arguments that Redis has.

    active      jobs at work in this worker, by its board
    scheduled   jobs that start later, or wait for their retry
    reserved    jobs that are ready for any free node

The last two belong to no worker, so a single node reports them for its whole app: the first living one, by name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TypedDict

from celery import Celery
from kombu.utils.json import loads

from coordinator.errors import CoordinatorError
from coordinator.fleet.nodes import Nodes
from coordinator.jobs import chain
from coordinator.jobs.hidden import Hidden
from coordinator.jobs.ready import id_in, some_ready
from coordinator.jobs.record import fields_of_many
from coordinator.jobs.validation import is_id
from coordinator.store.client import Store
from coordinator.store.times import instant

logger = logging.getLogger(__name__)


class Info(TypedDict):
    """A task in a reply of Celery's `inspect`."""

    id: str
    name: str
    args: Sequence[object] | None
    kwargs: dict[str, object] | str | None
    type: str
    hostname: str | None
    time_start: float | None
    acknowledged: bool
    delivery_info: dict[str, object]
    worker_pid: int | None


class Planned(TypedDict):
    """A task that starts later, in a reply of `inspect scheduled`."""

    eta: str
    priority: int
    request: Info


MOST = 1000  # jobs in a reply
_PRIORITY = 6  # which Celery's timer gives every task
_FIELDS = ("state", "class", "task", "phase", "step", "back", "value", "undid", "merge_args", "instead", "spec")


class InspectedJobs:
    """The jobs of one app, as its node `hostname` reports them."""

    def __init__(self, app: Celery, store: Store, hostname: str) -> None:
        self._app, self._store, self._hostname = app, store, hostname

    def active(self) -> list[Info]:
        """The jobs at work in this worker; without their arguments if Redis does not answer."""
        begun = {notice.job_id: (pid, notice) for pid, notice in self._app.coordinator._board.at_work()}
        try:
            known = self._known(list(begun))
        except CoordinatorError as error:
            logger.warning("cannot ask for the arguments of the jobs at work: %s", error)
            known = {}
        since = time.time() - time.monotonic()
        return [
            known.get(job_id, _info(job_id, notice.task))
            | {"hostname": self._hostname, "acknowledged": True, "time_start": since + notice.begun, "worker_pid": pid}
            for job_id, (pid, notice) in begun.items()
        ]

    def reserved(self) -> list[Info]:
        if not self._is_first():
            return []
        return list(self._known([*map(id_in, some_ready(self._store, MOST))], "ready").values())

    def scheduled(self) -> list[Planned]:
        """Jobs that start later or wait for their retry, the earliest first."""
        if not self._is_first():
            return []
        clock, due = self._store.clock(), dict[str, float]()
        for name, ahead in (("due", clock.wall - clock.now), ("starts", 0)):
            due |= {raw.decode(): at + ahead for raw, at in self._earliest(self._store.key(name))}
        known = self._known(sorted(due, key=due.__getitem__)[:MOST], "scheduled", "retrying")
        return [
            {"eta": instant(due[job_id]).isoformat(), "priority": _PRIORITY, "request": info}
            for job_id, info in known.items()
        ]

    def _earliest(self, key: str) -> list[tuple[bytes, float]]:
        ids = self._store.read("ZRANGE", key, 0, MOST - 1)
        instants = self._store.read_many([("ZSCORE", key, job_id) for job_id in ids])
        return [(job_id, at) for job_id, at in zip(ids, instants, strict=True) if at is not None]

    def among(self, ids: Sequence[str]) -> list[tuple[str, Info]]:
        """The jobs among these ids that this node reports, each with "active", "reserved" or "scheduled"."""
        jobs = [("active", info) for info in self.active() if info["id"] in ids]
        others = [job_id for job_id in ids if is_id(job_id) and job_id not in {info["id"] for _, info in jobs}]
        if not others or not self._is_first():
            return jobs
        jobs += [("reserved", info) for info in self._known(others, "ready").values()]
        return jobs + [("scheduled", info) for info in self._known(others, "scheduled", "retrying").values()]

    def _is_first(self) -> bool:
        """True if this node reports the jobs that belong to no worker."""
        names = [node.name for node in Nodes(self._store).living() if node.app == self._app.main]
        return min(names, default="") == self._hostname

    def _known(self, ids: Sequence[str], *states: str) -> dict[str, Info]:
        """The jobs of this app among these ids; if states are named, only those in one of them."""
        records = zip(ids, fields_of_many(self._store, ids, *_FIELDS), strict=True)
        hidden: Hidden = self._app.coordinator._hidden
        return {
            job_id: _info(
                job_id,
                task,
                *hidden.call(task, *_arguments(phase, step, back, value, undid, merge_args, instead, spec)),
            )
            for job_id, (state, kind, task, phase, step, back, value, undid, merge_args, instead, spec) in records
            if kind.partition("\n")[0] in ("", self._app.main) and (state in states or (state and not states))
        }


def _arguments(
    phase: str, step: str, back: str, value: str, undid: str, merge_args: str, instead: str, text: str
) -> tuple[list[object], dict[str, object]]:
    """The arguments of the step at work, or of the next step."""
    spec = chain.detoured(loads(text or "{}"), int(step or 0), loads(instead or "[]"))
    chosen, number, before = spec, int(step or 0), value
    if phase == "rollback":
        chosen, number, before = spec["rollback"], chain.number_of(back), undid
    args = chain.arguments(chosen, number, loads(before) if before else None)
    return args, {
        **chain.laid(chosen, number).get("kwargs", {}),
        **(loads(merge_args) if merge_args and not instead else {}),
    }


def _info(
    job_id: str, task: str, args: Sequence[object] | None = None, kwargs: dict[str, object] | None = None
) -> Info:
    """A job in the shape of Celery's `Request.info()`."""
    return {
        "id": job_id, "name": task, "args": args, "kwargs": kwargs, "type": task, "hostname": None, "time_start": None,
        "acknowledged": False, "delivery_info": {}, "worker_pid": None,
    }  # fmt: skip
