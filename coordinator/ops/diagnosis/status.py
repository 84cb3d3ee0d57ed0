"""Reads the status of an installation: its jobs, nodes and Redis, and their faults. It writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.core.finding import Finding
from coordinator.core.fleet.nodes import Node, Nodes
from coordinator.core.jobs import record
from coordinator.core.jobs.record import TERMINAL
from coordinator.core.store.bundle import Bundle
from coordinator.core.store.client import Store
from coordinator.core.store.library import check_server
from coordinator.ops.diagnosis.fleet import since_sweep
from coordinator.ops.diagnosis.rates import Span, rates_of
from coordinator.ops.diagnosis.redis_status import status_in
from coordinator.ops.search.fit import taken

_SUMS = ("created", "retries", "losses", "faults")


@dataclass(frozen=True, slots=True)
class Status:
    """The status of an installation.

    `running`: how many of the slots (`capacity`) jobs and ordinary tasks occupy. `jobs`: the number of jobs in each
    state, and of jobs that ever ended with each outcome. `findings`: faults and dangers, as `doctor` finds them.
    `stopped`: nodes are alive, but none of them has a label that jobs need. `master`: HOST:PORT of the Redis master,
    and `replicas`: how many replicas it has; "" and None without Sentinel. `swept`: seconds since the last sweep, None
    before the first. `refused`: the number of requests that the app's inboxes refused, None if unknown. `answers`,
    `used_memory`, `maxmemory`: how Redis answers, as `RedisStatus` has it.
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
    answers: float = 0.0
    used_memory: int | None = None
    maxmemory: int | None = None


def status_of(store: Store, findings: Sequence[Finding] = (), refused: int | None = None) -> Status:
    """Read the status of an installation. Raises SettingsError if the Redis server is too old.

    `findings`: from `doctor.examine`. `refused`: the number of refused requests, None if unknown.
    """
    bundle = Bundle(store)
    info_, living_, rates_ = bundle.add(lambda own: own.read("INFO")), bundle.add(_living), bundle.add(rates_of)
    counted, swept = bundle.add(record.counts), bundle.add(since_sweep)
    bundle.run()
    info, living, rates = info_.result(), living_.result(), rates_.result()
    check_server(info, store.where)
    server = status_in(store, info, bundle.shortest or 0.0)
    counts = {state: number for state, number in counted.result().items() if number and state not in _SUMS}
    order = sorted(counts, key=lambda state: (state in TERMINAL, state))
    return Status(
        redis=store.where,
        version=server.version,
        prefix=store.settings.prefix,
        nodes=len(living),
        capacity=sum(node.capacity for node in living),
        running=sum(map(taken, living)),
        jobs={state: counts[state] for state in order},
        hour=rates.hour,
        day=rates.day,
        findings=tuple(findings),
        stopped=bool(living) and any(finding.code == "label.lost" for finding in findings),
        master=store.master,
        replicas=int(str(info.get("connected_slaves", 0))) if store.master else None,
        swept=swept.result(),
        refused=refused,
        answers=server.answers,
        used_memory=server.used_memory,
        maxmemory=server.maxmemory,
    )


def _living(store: Store) -> list[Node]:
    return Nodes(store).living()
