"""An installation at one moment: its jobs, its nodes, its Redis, and what is wrong with them. Nothing here writes."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coordinator.documents.replica_set import ReplicaSet, label_of
from coordinator.fleet.nodes import Nodes
from coordinator.jobs import record
from coordinator.jobs.record import TERMINAL, Job
from coordinator.lanes.lane import look
from coordinator.store.client import Store
from coordinator.store.library import check_server

_LINE = 100_000  # jobs of a lane whose place is asked for
_SUMS = ("created", "retries", "losses", "faults")


@dataclass(frozen=True, slots=True)
class Status:
    """`jobs`: how many are in each state, or ever ended in it. `warnings`: dangers to jobs, each with its remedy.

    `stopped`: nodes live, and none of them may read a document that its jobs need. `master`, `replicas`: through
    Sentinel, HOST:PORT, and how many replicas follow it now.
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


def status_of(store: Store, documents: Sequence[str] = ()) -> Status:
    """`documents`: those that each node of this installation is to keep."""
    info, warnings = store.call(lambda: _server(store))
    living = Nodes(store).living()
    out, unkept = out_of_replica_sets(store, documents), unkept_documents(store, documents)
    found = {state: number for state, number in record.counts(store).items() if number and state not in _SUMS}
    version = str(info.get("valkey_version") or info.get("redis_version", ""))
    order = sorted(found, key=lambda state: (state in TERMINAL, state))
    return Status(
        redis=store.where,
        version=version,
        prefix=store.settings.prefix,
        nodes=len(living),
        capacity=sum(node.capacity for node in living),
        running=sum(node.running for node in living),
        jobs={state: found[state] for state in order},
        warnings=(*warnings, *([] if living else ["no node is alive: jobs wait; start a worker"]), *out, *unkept),
        stopped=bool(living and unkept),
        master=store.master,
        replicas=int(str(info.get("connected_slaves", 0))) if store.master else None,
    )


def out_of_replica_sets(store: Store, documents: Sequence[str]) -> list[str]:
    """A sentence about each living node or beat that is out of the replica set of one of these documents."""
    return [
        f"{one.name} is out of the replica set of {document}: {one.why or 'it does not report'}"
        for document in documents
        for one in ReplicaSet(store, document).keepers()
        if one.living and not one.inside
    ]


def unkept_documents(store: Store, documents: Sequence[str]) -> list[str]:
    """A sentence about each of these documents that no living node may read."""
    labels = {label for node in Nodes(store).living() for label in node.labels}
    return [
        f"no node is in the replica set of {document}: the jobs that need it wait"
        for document in documents
        if label_of(document) not in labels
    ]


def warnings(store: Store) -> tuple[str, ...]:
    """Why this Redis may lose jobs; a warden says it when it starts.

    Raises StoreUnavailable, or SettingsError if the server is too old.
    """
    return store.call(lambda: _server(store))[1]


def list_jobs(store: Store, *, key: str = "", state: str = "", most: int = 50) -> list[Job]:
    """The newest jobs of lane `key` (past ones too) in this state: the running first, then by submission.

    Those that stand in the lane come first, in its order.
    """

    def fits(found: dict[str, str]) -> bool:
        return state in ("", record.state_of(found)) and (not key or key in found["keys"].split("\n"))

    kept = (
        (float(found.get("submitted", 0)), job_id)
        for job_id, found in record.scan(store, "state", "phase", "keys", "submitted")
        if fits(found)
    )
    line = look(store, [key], _LINE)[0].jobs if key else ()
    places = {job_id: place for place, job_id in enumerate(line)}
    found = heapq.nsmallest(most, kept, key=lambda one: (places.get(one[1], _LINE), -one[0]))
    jobs = record.read_many(store, [job_id for _, job_id in found])
    return sorted(jobs, key=lambda job: (job.id not in places, job.state != "running"))


def _server(store: Store) -> tuple[dict[str, object], tuple[str, ...]]:
    """The server's INFO, checked, and the warnings. A hosted server may refuse to tell its settings."""
    pipeline = store.client.pipeline(transaction=False)
    pipeline.info()
    pipeline.config_get("save")
    pipeline.config_get("min-replicas-to-write")
    info, saving, least = pipeline.execute(raise_on_error=False)
    if isinstance(info, Exception):
        raise info
    check_server(info, store.where)
    found = []
    if not info.get("aof_enabled"):
        if isinstance(saving, dict) and not saving.get("save"):
            found.append("Redis keeps nothing on disk, so a restart loses all jobs: set appendonly yes")
        else:
            found.append("Redis keeps no append-only file, so a crash may lose the last minutes: set appendonly yes")
    policy = info.get("maxmemory_policy", "noeviction")
    if info.get("maxmemory") and policy != "noeviction":
        found.append(f"Redis may evict jobs and locks ({policy}): set maxmemory-policy noeviction")
    return info, (*found, *(_of_failovers(info, least) if store.master else ()))


def _of_failovers(info: Mapping[str, object], least: Mapping[str, str] | Exception) -> list[str]:
    """Why a failover through Sentinel may lose jobs that were acknowledged."""
    found = []
    if not info.get("connected_slaves"):
        found.append("no replica follows the master: where it dies, all jobs are lost, or wait for its return")
    if not isinstance(least, Exception) and least.get("min-replicas-to-write") == "0":
        lost = "a master that is cut off goes on to accept jobs, which a failover loses"
        found.append(f"{lost}: set min-replicas-to-write 1 and min-replicas-max-lag 10 on all its servers")
    return found
