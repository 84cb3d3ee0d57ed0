"""Adds jobs to the replies of Celery's `inspect`, like tasks, with their arguments from Redis.

    active      jobs that run in this worker, read from its runner status file
    scheduled   jobs that start later, or wait for their retry
    reserved    jobs that are ready for any free node

Jobs that are scheduled or reserved belong to no worker. Only one node reports them, for its whole app: the living node
whose name sorts first.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TypedDict

from celery import Celery
from kombu.utils.json import loads

from coordinator.core.fleet.nodes import Nodes
from coordinator.core.jobs import chain, collecting
from coordinator.core.jobs.hidden import Hidden
from coordinator.core.jobs.ready import id_in, some_ready
from coordinator.core.jobs.record import fields_of_many
from coordinator.core.jobs.validation import is_id
from coordinator.core.store.client import Store
from coordinator.core.store.times import instant
from coordinator.errors import CoordinatorError

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


MOST = 1000  # the most jobs in the reply of `reserved`, and of `scheduled`
_PRIORITY = 6  # the priority of scheduled jobs in replies: the value that Celery's timer gives every task
_FIELDS = ("state", "class", "task", "phase", "step", "back", "value", "undid", "calls", "instead", "spec")


class InspectedJobs:
    """Reads the jobs of one app that its node `hostname` reports in replies of `inspect`."""

    def __init__(self, app: Celery, store: Store, hostname: str) -> None:
        self._app, self._store, self._hostname = app, store, hostname

    def active(self) -> list[Info]:
        """Return the jobs that run in this worker. If Redis does not answer, their arguments are missing."""
        begun = {status.job_id: (pid, status) for pid, status in self._app.coordinator._status_file.at_work()}
        try:
            known = self._known(list(begun))
        except CoordinatorError as error:
            logger.warning("inspect active: cannot read the arguments of running jobs from Redis: %s", error)
            known = {}
        since = time.time() - time.monotonic()
        return [
            known.get(job_id, _info(job_id, status.task))
            | {"hostname": self._hostname, "acknowledged": True, "time_start": since + status.begun, "worker_pid": pid}
            for job_id, (pid, status) in begun.items()
        ]

    def reserved(self) -> list[Info]:
        if not self._is_first():
            return []
        return list(self._known([*map(id_in, some_ready(self._store, MOST))], "ready").values())

    def scheduled(self) -> list[Planned]:
        """Return up to 1000 jobs that start later or wait for their retry, the earliest first; [] if another node
        reports them.
        """
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
        """Return those of the jobs `ids` that this node reports, as pairs of "active", "reserved" or "scheduled", and
        the job.
        """
        jobs = [("active", info) for info in self.active() if info["id"] in ids]
        others = [job_id for job_id in ids if is_id(job_id) and job_id not in {info["id"] for _, info in jobs}]
        if not others or not self._is_first():
            return jobs
        jobs += [("reserved", info) for info in self._known(others, "ready").values()]
        return jobs + [("scheduled", info) for info in self._known(others, "scheduled", "retrying").values()]

    def _is_first(self) -> bool:
        """True if this node reports the jobs that belong to no worker: it sorts first among its app's living nodes."""
        names = [node.name for node in Nodes(self._store).living() if node.app == self._app.main]
        return min(names, default="") == self._hostname

    def _known(self, ids: Sequence[str], *states: str) -> dict[str, Info]:
        """Read from Redis the jobs of this app among `ids`, by id. `states`: leave out jobs in other states; none
        given: take jobs in any state.
        """
        records = zip(ids, fields_of_many(self._store, ids, *_FIELDS), strict=True)
        hidden: Hidden = self._app.coordinator._hidden
        return {
            job_id: _info(
                job_id,
                task,
                *hidden.call(task, *_arguments(phase, step, back, value, undid, calls, instead, spec)),
            )
            for job_id, (state, kind, task, phase, step, back, value, undid, calls, instead, spec) in records
            if kind.partition("\n")[0] in ("", self._app.main) and (state in states or (state and not states))
        }


def _arguments(
    phase: str, step: str, back: str, value: str, undid: str, calls: str, instead: str, text: str
) -> tuple[list[object], dict[str, object]]:
    """Return args and kwargs of the step that a job runs now or next, from the fields of its record. `text`: its spec,
    as JSON.
    """
    spec = chain.detoured(loads(text or "{}"), int(step or 0), loads(instead or "[]"))
    chosen, number, before = spec, int(step or 0), value
    if phase == "rollback":
        chosen, number, before = spec["rollback"], chain.number_of(back), undid
    if calls and not (instead or phase == "rollback"):
        return collecting.given(calls)
    args = chain.arguments(chosen, number, loads(before) if before else None)
    return args, dict(chain.step_spec(chosen, number).get("kwargs", {}))


def _info(
    job_id: str, task: str, args: Sequence[object] | None = None, kwargs: dict[str, object] | None = None
) -> Info:
    """Return a job in the form of Celery's `Request.info()`; fields that only a running task has are None."""
    return {
        "id": job_id, "name": task, "args": args, "kwargs": kwargs, "type": task, "hostname": None, "time_start": None,
        "acknowledged": False, "delivery_info": {}, "worker_pid": None,
    }  # fmt: skip
