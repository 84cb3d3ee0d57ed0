"""Reads the status of an installation: its jobs, nodes and Redis, and their faults. Nothing here writes."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from coordinator.diagnosis.doctor import examine
from coordinator.diagnosis.finding import Finding
from coordinator.diagnosis.fleet import Reasons, since_sweep
from coordinator.fleet.nodes import Nodes
from coordinator.jobs import record
from coordinator.jobs.record import TERMINAL, Job
from coordinator.lanes.view import look
from coordinator.store.client import Store
from coordinator.store.library import check_server

_LINE = 100_000  # jobs of a lane that are listed in its order
_SUMS = ("created", "retries", "losses", "faults")


@dataclass(frozen=True, slots=True)
class Status:
    """The status of an installation.

    `jobs`: the number in each state, or that ever ended in it. `findings`: faults and dangers, as `doctor` says them.
    `stopped`: nodes live, and none of them has a label that jobs need. `master`: HOST:PORT, and `replicas`: the number
    that follow it now; both only through Sentinel. `swept`: seconds since the last sweep, if any. `refused`: the number
    of requests that the app's inboxes refused.
    """

    redis: str
    version: str
    prefix: str
    nodes: int
    capacity: int
    running: int
    jobs: dict[str, int]
    findings: tuple[Finding, ...]
    stopped: bool
    master: str = ""
    replicas: int | None = None
    swept: float | None = None
    refused: int | None = None


def status_of(
    store: Store, needed: Mapping[str, Reasons] = MappingProxyType({}), more: Iterable[Finding] = ()
) -> Status:
    """Read the status. `needed` and `more`: see `doctor.examine`. Raises SettingsError if the server is too old."""
    info = store.read("INFO")
    check_server(info, store.where)
    living = Nodes(store).living()
    labels = {label for node in living for label in node.labels}
    counts = {state: number for state, number in record.counts(store).items() if number and state not in _SUMS}
    order = sorted(counts, key=lambda state: (state in TERMINAL, state))
    return Status(
        redis=store.where,
        version=str(info.get("valkey_version") or info.get("redis_version", "")),
        prefix=store.settings.prefix,
        nodes=len(living),
        capacity=sum(node.capacity for node in living),
        running=sum(node.running for node in living),
        jobs={state: counts[state] for state in order},
        findings=tuple(examine(store, needed, more)),
        stopped=bool(living) and not needed.keys() <= labels,
        master=store.master,
        replicas=int(str(info.get("connected_slaves", 0))) if store.master else None,
        swept=since_sweep(store),
    )


def list_jobs(store: Store, *, key: str = "", state: str = "", most: int = 50) -> list[Job]:
    """List the newest jobs of lane `key` (past jobs too) in this state: running jobs first, then by submission.

    Jobs that stand in the lane come before all others, in its order.
    """

    def fits(fields: dict[str, str]) -> bool:
        return state in ("", record.state_of(fields)) and (not key or key in fields.get("keys", "").split("\n"))

    dated = (
        (int(at) if (at := fields.get("submitted", "")).isdecimal() else 0, job_id)
        for job_id, fields in record.scan(store, "state", "phase", "keys", "submitted")
        if fits(fields)
    )
    line = look(store, [key], _LINE)[0].jobs if key else ()
    places = {job_id: place for place, job_id in enumerate(line)}
    newest = heapq.nsmallest(most, dated, key=lambda job: (places.get(job[1], _LINE), -job[0]))
    jobs = record.read_many(store, [job_id for _, job_id in newest])
    return sorted(jobs, key=lambda job: (job.id not in places, job.state != "running"))
