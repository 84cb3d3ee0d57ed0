"""The causes why a node does nothing."""

from __future__ import annotations

from collections import Counter

from coordinator.diagnosis.cause import Cause
from coordinator.diagnosis.codes import REJECTED, cause, names
from coordinator.diagnosis.fit import fit, taken
from coordinator.diagnosis.lost import lost_nodes
from coordinator.diagnosis.snapshot import Snapshot, by
from coordinator.fleet.nodes import Node
from coordinator.store.reading import text_in
from coordinator.store.values import Json


def of_node(look: Snapshot, name: str) -> list[Cause]:
    """The causes of a node, the gravest first. It leads to the jobs that it runs."""
    thing = f"node {name}"
    node = next((node for node in look.nodes if node.name == name), None)
    if node is None:
        living = names([node.name for node in look.living])
        for lost in [one for one in lost_nodes(look) if one.name == name]:
            jobs = [f"job {job.id}" for job in lost.jobs]
            at = lost.at.isoformat().replace("+00:00", "Z")
            return [cause("node.lost", thing, jobs, name=name, at=at, host=lost.host, held=str(lost), living=living)]
        return [cause("node.gone", thing, name=name, living=living)]
    causes = [] if node.alive else [cause("node.silent", thing)]
    if node.draining:
        drained: dict[str, Json] = {"drained": name, **by(node.drained)} if node.drained else {"stops": "stops"}
        causes.append(cause("node.drains", thing, **drained))
    if taken(node):
        causes.append(_at_work(look, node))
    idle = not causes
    deaf, braked = look.store.read("HMGET", look.store.key("node", name), "deaf", "braked")
    causes += [cause("node.deaf", thing, **({"failure": node.failure} if node.failure else {}))] if deaf == b"1" else []
    causes += [cause("node.braked", thing, load=node.load, memory=node.memory)] if braked == b"1" else []
    return causes + (_offers(look, node, idle) if node.alive else [])


def _at_work(look: Snapshot, node: Node) -> Cause:
    claims: list[bytes] = look.store.read("HVALS", look.store.key("work", node.name))
    jobs = [f"job {job_id}" for claim in claims if (job_id := text_in(claim.partition(b" ")[2].partition(b" ")[2]))]
    facts: dict[str, Json] = {"running": node.running, "ordinary": node.ordinary, "capacity": node.capacity}
    full = taken(node) >= node.capacity
    return cause("node.full" if full else "node.busy", f"node {node.name}", jobs[:21], **facts)


def _offers(look: Snapshot, node: Node, idle: bool) -> list[Cause]:
    """The ready jobs that the node may take, and the lacks for which others reject it."""
    offered, lacks = 0, Counter[tuple[str, str]]()
    for one in look.ready:
        found = fit([node], one.kind.split("\n"), one.task)
        offered += one.count * bool(found.free)
        for code, about in found.rejected:
            lacks[code, str(about["lacks"])] += one.count * bool(about["lacks"])
    thing = f"node {node.name}"
    causes = [
        cause("node.lacks", thing, count=count, code=code, rejected=REJECTED[code], lacks=what)
        for (code, what), count in lacks.most_common(5)
        if count
    ]
    if offered:
        causes.append(cause("node.offered", thing, count=offered))
    return [*causes, *([cause("node.idle", thing)] if idle and not offered else [])]
