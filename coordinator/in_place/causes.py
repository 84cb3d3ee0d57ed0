"""Why a job is where it is, for `coordinator.in_place`: no node is asked, and nothing waits for an instant."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.diagnosis.why import Found, Look, causes_of
from coordinator.in_place.lanes import Memory
from coordinator.jobs.record import Job
from coordinator.store.times import Clock


def causes_in_place(lanes: Memory, job_id: str) -> list[str]:
    return causes_of(_LookInPlace(lanes), job_id)


class _LookInPlace(Look):
    def __init__(self, lanes: Memory) -> None:
        self.lanes = self.memory = lanes
        now = lanes.rules.now()
        self.clock = Clock(now, now, now)

    def _alive(self, job: Job) -> bool:
        return True

    def _ready(self, job: Job, what: str = "is ready") -> Found:
        return [f"job {job.id} {what} and runs in its turn"], None

    def _collected(self, job: Job) -> Found:
        (sorter,) = self._fields(job, "sorter")
        return [f"job {job.id} is held by the sorter {sorter.partition(chr(10))[0]!r} until the test flushes it"], None

    def _parked_on_tasks(self, job: Job, ids: Sequence[str], till: str) -> list[str]:
        return []

    def _rolling_back(self, job: Job) -> Found:
        state = self.memory.rules.records[job.id]["state"]
        if state == "parked":
            return self._parked(job, "is rolled back; its rollback is parked")
        at_work = state == "running"
        return self._running(job, "is rolled back") if at_work else self._ready(job, "is to be rolled back")

    def _fields(self, job: Job, *names: str) -> list[str]:
        return [self.memory.rules.records[job.id].get(name, "") for name in names]
