"""Explains why a node does nothing: it is gone, drains, is full, or no ready job suits it."""

from __future__ import annotations

from collections import Counter

from coordinator.core.fleet.nodes import Node
from coordinator.core.store.reading import text_in
from coordinator.core.store.values import Json
from coordinator.ops.diagnosis.cause import Cause
from coordinator.ops.diagnosis.codes import REJECTED, cause, names
from coordinator.ops.diagnosis.lost import lost_nodes
from coordinator.ops.diagnosis.snapshot import Snapshot, by
from coordinator.ops.search.fit import fit, taken


def of_node(snapshot: Snapshot, name: str) -> list[Cause]:
    """Return the causes of a node, the gravest first. For a node at work, a cause names the jobs that run there."""
    thing = f"node {name}"
    node = next((node for node in snapshot.nodes if node.name == name), None)
    if node is None:
        living = names([node.name for node in snapshot.living])
        for lost in [lost for lost in lost_nodes(snapshot) if lost.name == name]:
            jobs = [f"job {job.id}" for job in lost.jobs]
            at = lost.at.isoformat().replace("+00:00", "Z")
            return [cause("node.lost", thing, jobs, name=name, at=at, host=lost.host, held=str(lost), living=living)]
        return [cause("node.gone", thing, name=name, living=living)]
    causes = [] if node.alive else [cause("node.silent", thing)]
    if node.draining:
        drained: dict[str, Json] = {"drained": name, **by(node.drained)} if node.drained else {"stops": "stops"}
        causes.append(cause("node.drains", thing, **drained))
    if taken(node):
        causes.append(_at_work(snapshot, node))
    idle = not causes
    deaf, overloaded = snapshot.store.read("HMGET", snapshot.store.key("node", name), "deaf", "braked")
    causes += [cause("node.deaf", thing, **({"failure": node.failure} if node.failure else {}))] if deaf == b"1" else []
    causes += [cause("node.overloaded", thing, load=node.load, memory=node.memory)] if overloaded == b"1" else []
    return causes + (_offers(snapshot, node, idle) if node.alive else [])


def _at_work(snapshot: Snapshot, node: Node) -> Cause:
    claims: list[bytes] = snapshot.store.read("HVALS", snapshot.store.key("work", node.name))
    jobs = [f"job {job_id}" for claim in claims if (job_id := text_in(claim.partition(b" ")[2].partition(b" ")[2]))]
    facts: dict[str, Json] = {"taken": taken(node), "ordinary": node.ordinary or None, "capacity": node.capacity}
    full = taken(node) >= node.capacity
    return cause("node.full" if full else "node.busy", f"node {node.name}", jobs[:21], **facts)


def _offers(snapshot: Snapshot, node: Node, idle: bool) -> list[Cause]:
    """Return causes with the number of ready jobs that the node may take, and with what the node lacks for the others.

    `idle`: True if no other cause was found, so that the node may have nothing to do.
    """
    offered, lacks = 0, Counter[tuple[str, str]]()
    for ready in snapshot.ready:
        fitness = fit([node], ready.kind.split("\n"), ready.task)
        offered += ready.count * bool(fitness.free)
        for code, about in fitness.rejected:
            lacks[code, str(about["lacks"])] += ready.count * bool(about["lacks"])
    thing = f"node {node.name}"
    causes = [
        cause("node.lacks", thing, count=count, code=code, rejected=REJECTED[code], lacks=lack)
        for (code, lack), count in lacks.most_common(5)
        if count
    ]
    if offered:
        causes.append(cause("node.offered", thing, count=offered))
    return [
        *causes,
        *([cause("node.idle", thing, taken=taken(node), capacity=node.capacity)] if idle and not offered else []),
    ]
