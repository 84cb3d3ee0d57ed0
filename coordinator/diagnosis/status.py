"""Reads the status of an installation: its jobs, nodes and Redis, and their faults. Nothing here writes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

from coordinator.diagnosis.unserved import unserved
from coordinator.errors import StoreRefused
from coordinator.fleet.nodes import Nodes
from coordinator.jobs import record
from coordinator.jobs.record import TERMINAL, Job
from coordinator.lanes.view import look
from coordinator.store.client import Store
from coordinator.store.library import check_server
from coordinator.store.times import span_text

_LINE = 100_000  # jobs of a lane that are listed in its order
Reasons = Callable[[Store], list[str]]
_SUMS = ("created", "retries", "losses", "faults")


@dataclass(frozen=True, slots=True)
class Status:
    """The status of an installation.

    `jobs`: the number in each state, or that ever ended in it. `warnings`: dangers to jobs, each with its remedy.
    `stopped`: nodes live, and none of them has a label that jobs need. `master`: HOST:PORT, and `replicas`: the number
    that follow it now; both only through Sentinel. `swept`: seconds since the last sweep, if any.
    """

    redis: str
    version: str
    prefix: str
    nodes: int
    capacity: int
    running: int
    jobs: dict[str, int]
    warnings: tuple[str, ...]
    stopped: bool
    master: str = ""
    replicas: int | None = None
    swept: float | None = None


def status_of(store: Store, needed: Mapping[str, Reasons] = MappingProxyType({})) -> Status:
    """Read the status. `needed`: labels that jobs need; each function says which nodes lost the label, and why."""
    info, warnings = _server(store)
    living, swept = Nodes(store).living(), since_sweep(store)
    labels = {label for node in living for label in node.labels}
    lost = [f"no node has the label {label}: the jobs that need it wait" for label in needed if label not in labels]
    counts = {state: number for state, number in record.counts(store).items() if number and state not in _SUMS}
    version = str(info.get("valkey_version") or info.get("redis_version", ""))
    order = sorted(counts, key=lambda state: (state in TERMINAL, state))
    return Status(
        redis=store.where,
        version=version,
        prefix=store.settings.prefix,
        nodes=len(living),
        capacity=sum(node.capacity for node in living),
        running=sum(node.running for node in living),
        jobs={state: counts[state] for state in order},
        warnings=(
            *warnings,
            *_of_wardens(store, len(living), swept),
            *(sentence for why in needed.values() for sentence in why(store)),
            *lost,
            *(unserved(store, living) if living else ()),
        ),
        stopped=bool(living and lost),
        master=store.master,
        replicas=int(str(info.get("connected_slaves", 0))) if store.master else None,
        swept=swept,
    )


def since_sweep(store: Store) -> float | None:
    """Seconds since the last sweep of any node."""
    last = store.read("HGET", store.key("swept"), "last")
    return None if last is None else max(0.0, (store.now() - int(last)) / 1000)


def _of_wardens(store: Store, living: int, swept: float | None) -> list[str]:
    if not living:
        others = [] if store.read("EXISTS", store.key("swept")) else _other_prefixes(store)
        wrong = f"; no node ever was under the prefix {store.settings.prefix!r}, but under {', '.join(others)}"
        return ["no node is alive: jobs wait; start a worker" + (wrong if others else "")]
    if swept is None or swept <= store.settings.node_ttl:
        return []
    return [
        f"no node has swept for {span_text(swept)}: retries, time limits and lost jobs wait; look at the nodes' clocks"
    ]


def _other_prefixes(store: Store) -> list[str]:
    """The prefixes of the installations in this Redis, by the keys of their sweeps; none where we may not look."""
    with suppress(StoreRefused):
        names, cursor = set(), None
        while cursor != 0:
            cursor, page = store.read("SCAN", cursor or 0, "MATCH", "{*}:swept", "COUNT", 1000)
            names |= {repr(name.decode(errors="replace")[1:].partition("}")[0]) for name in page}
        return sorted(names)
    return []


def warnings(store: Store) -> tuple[str, ...]:
    """The reasons why this Redis may lose jobs; a warden logs them when it starts.

    Raises StoreUnavailable, or SettingsError if the server is too old.
    """
    return _server(store)[1]


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


def _server(store: Store) -> tuple[dict[str, object], tuple[str, ...]]:
    """Check the server's INFO; return it and the warnings. A hosted server may refuse to show its settings."""
    info = store.read("INFO")
    check_server(info, store.where)
    dangers = []
    if not info.get("aof_enabled"):
        if store.setting("save") == "":
            dangers.append("Redis keeps nothing on disk, so a restart loses all jobs: set appendonly yes")
        else:
            dangers.append("Redis keeps no append-only file, so a crash may lose the last minutes: set appendonly yes")
    policy = info.get("maxmemory_policy", "noeviction")
    if info.get("maxmemory") and policy != "noeviction":
        dangers.append(f"Redis may evict jobs and locks ({policy}): set maxmemory-policy noeviction")
    return info, (*dangers, *(_of_failovers(info, store.setting("min-replicas-to-write")) if store.master else ()))


def _of_failovers(info: Mapping[str, object], least: str | None) -> list[str]:
    """The reasons why a failover through Sentinel may lose acknowledged jobs."""
    dangers = []
    if not info.get("connected_slaves"):
        dangers.append("no replica follows the master: where it dies, all jobs are lost, or wait for its return")
    if least == "0":
        lost = "a master that is cut off goes on to accept jobs, which a failover loses"
        dangers.append(f"{lost}: set min-replicas-to-write 1 and min-replicas-max-lag 10 on all its servers")
    return dangers
