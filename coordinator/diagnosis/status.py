"""Reads the status of an installation: its jobs, nodes and Redis, and their faults. Nothing here writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.diagnosis.finding import Finding
from coordinator.diagnosis.fit import taken
from coordinator.diagnosis.fleet import since_sweep
from coordinator.fleet.nodes import Nodes
from coordinator.jobs import record
from coordinator.jobs.rates import Span, rates_of
from coordinator.jobs.record import TERMINAL
from coordinator.store.client import Store
from coordinator.store.library import check_server

_SUMS = ("created", "retries", "losses", "faults")


@dataclass(frozen=True, slots=True)
class Status:
    """The status of an installation.

    `running`: the slots that jobs and ordinary tasks have. `jobs`: the number in each state, or that ever ended in it.
    `findings`: faults and dangers, as `doctor` says them.
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
    hour: Span
    day: Span
    findings: tuple[Finding, ...]
    stopped: bool
    master: str = ""
    replicas: int | None = None
    swept: float | None = None
    refused: int | None = None


def status_of(store: Store, findings: Sequence[Finding] = (), refused: int | None = None) -> Status:
    """Read the status. `findings`: of `doctor.examine`. Raises SettingsError if the server is too old."""
    info = store.read("INFO")
    check_server(info, store.where)
    living = Nodes(store).living()
    counts = {state: number for state, number in record.counts(store).items() if number and state not in _SUMS}
    rates = rates_of(store)
    order = sorted(counts, key=lambda state: (state in TERMINAL, state))
    return Status(
        redis=store.where,
        version=str(info.get("valkey_version") or info.get("redis_version", "")),
        prefix=store.settings.prefix,
        nodes=len(living),
        capacity=sum(node.capacity for node in living),
        running=sum(map(taken, living)),
        jobs={state: counts[state] for state in order},
        hour=rates.hour,
        day=rates.day,
        findings=tuple(findings),
        stopped=bool(living) and any(one.code == "label.lost" for one in findings),
        master=store.master,
        replicas=int(str(info.get("connected_slaves", 0))) if store.master else None,
        swept=since_sweep(store),
        refused=refused,
    )
