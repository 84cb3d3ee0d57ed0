"""`coordinator.plan`: returns what each verb would do, and changes nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Unpack

from coordinator.core.jobs import validation
from coordinator.core.jobs.uses import check_quota
from coordinator.core.jobs.validation import check_end, check_key, checks_arguments, id_of
from coordinator.core.quotas.client import Quota, checked
from coordinator.ops.verbs.bulk import ActingOn, BulkVerb, on_filter
from coordinator.ops.verbs.drain_plan import DrainPlan, of_drain
from coordinator.ops.verbs.plan import (
    Plan,
    Projection,
    of_cancel,
    of_move,
    of_quota,
    of_release,
    of_retarget,
    of_retry,
)
from coordinator.ops.verbs.retarget import class_for

if TYPE_CHECKING:
    from coordinator.core.jobs.states import End
    from coordinator.core.jobs.submission import Submission
    from coordinator.core.store.client import Store
    from coordinator.ops.verbs.jobs import JobVerbs


@checks_arguments
class Planner:
    """Plans verbs. Each method takes the arguments of the coordinator's method of the same name, only reads from Redis,
    and returns a Plan; of a node's verb a DrainPlan. A viewer may call the method, too. It raises what the
    coordinator's method raises.
    """

    def __init__(self, coordinator: JobVerbs) -> None:
        self._coordinator = coordinator

    @property
    def _store(self) -> Store:
        return self._coordinator._core.store

    def cancel(self, job_id: str | Submission) -> Plan:
        projection = Projection(self._store)
        return of_cancel(projection, [projection.job(id_of(job_id))])

    def retry(self, job_id: str | Submission, *, to: End = "back") -> Plan:
        projection = Projection(self._store)
        return of_retry(projection, [projection.job(id_of(job_id))], check_end(to))

    def move(self, job_id: str | Submission, *, priority: int | None = None, to: End = "back") -> Plan:
        projection = Projection(self._store)
        return of_move(projection, [projection.job(id_of(job_id))], priority, check_end(to))

    def retarget(self, old: str, new: str) -> Plan:
        c = self._coordinator
        return of_retarget(self._store, old, new, class_for(c.app, c._core, new))

    def release(self, key: str, *, holder: str = "") -> Plan:
        return of_release(Projection(self._store), check_key(key), holder)

    def pause(self, key: str, *, until: object = None) -> Plan:
        return self.act("pause", key=check_key(key))

    def resume(self, key: str) -> Plan:
        return self.act("resume", key=check_key(key))

    def quota(
        self, name: str, *, concurrency: int | None = None, rate: str | float | None = None, burst: int = 1
    ) -> Plan:  # fmt: skip
        return of_quota(Projection(self._store), "quota", name, checked(name, concurrency, rate, burst))

    def drop_quota(self, name: str) -> Plan:
        return of_quota(Projection(self._store), "drop", name, Quota(name, None, None, None))

    def cool_down(self, name: str, until: datetime | float | str | None = None) -> Plan:
        [quota] = self._coordinator._quotas.read_many([check_quota(name)])
        closed = bool(validation.until(until))
        return of_quota(Projection(self._store), "cool", name, replace(quota, cools_for=1.0 if closed else 0.0))

    def drain(self, node: str) -> DrainPlan:
        return of_drain(self._store, node, drain=True)

    def undrain(self, node: str) -> DrainPlan:
        return of_drain(self._store, node, drain=False)

    def act(self, verb: BulkVerb, **wanted: Unpack[ActingOn]) -> Plan:
        bulk, _ = on_filter(self._store, verb, wanted, self._coordinator._unseen)
        return bulk.plan()
