"""Which living nodes may take a ready job, and what rejects the others.

Each node counts once, under the first cause that rejects it, in the order app, queue, labels, task, drains, full: so
the counts add up to the nodes, and whoever mends a cause frees the nodes that count under it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from coordinator.diagnosis.codes import names
from coordinator.fleet.nodes import Node
from coordinator.store.values import Json


@dataclass(slots=True)
class Fit:
    """`rejected`: code and facts of each cause, with the number of nodes; `full`, `free`: the nodes that are left."""

    nodes: int
    rejected: list[tuple[str, Mapping[str, Json]]] = field(default_factory=list)
    full: list[Node] = field(default_factory=list)
    free: list[Node] = field(default_factory=list)

    @property
    def code(self) -> str:
        """The cause of a ready job that nobody has taken."""
        if not self.nodes:
            return "waiting.fleet"
        return "waiting.claim" if self.free else "waiting.slot" if self.full else "waiting.node"

    @property
    def nobody(self) -> bool:
        """True where no node has what the job needs, whether or not it drains or is full."""
        return not (self.full or self.free or any(code == "rejected.drains" for code, _ in self.rejected))


def fit(living: Sequence[Node], kind: Sequence[str], task: str) -> Fit:
    """Judge the nodes for a job of this class (app, queue, labels) and task."""
    found, left = Fit(len(living)), list(living)
    for code, lacks, test in _conditions(kind, task):
        out = [node for node in left if not test(node)]
        left = [node for node in left if test(node)]
        if out:
            found.rejected.append((code, _facts(out, len(living), lacks)))
    found.full = [node for node in left if taken(node) >= node.capacity]
    found.free = [node for node in left if taken(node) < node.capacity]
    if found.full:
        found.rejected.append(("rejected.full", _facts(found.full, len(living), "")))
    return found


def taken(node: Node) -> int:
    """The slots of a node that its jobs and its ordinary tasks have."""
    return node.running + node.ordinary


def slots(node: Node) -> str:
    return f"{node.name} ({taken(node)} of {node.capacity})"


def _conditions(kind: Sequence[str], task: str) -> list[tuple[str, str, Callable[[Node], bool]]]:
    app, queue, *labels = kind if len(kind) > 1 else [*kind, ""]
    return [
        *([("rejected.app", app, lambda node: node.app == app)] if app else []),
        ("rejected.queue", queue, lambda node: queue in node.queues),
        *(("rejected.label", label, lambda node, label=label: label in node.labels) for label in labels),
        ("rejected.task", task, lambda node: task in node.tasks),
        ("rejected.drains", "", lambda node: not node.draining),
    ]


def _facts(out: Sequence[Node], nodes: int, lacks: str) -> Mapping[str, Json]:
    drained = next((node.name for node in out if node.drained), None)
    who = names([slots(node) if taken(node) >= node.capacity and not lacks else node.name for node in out])
    return {"count": len(out), "nodes": nodes, "who": who, "lacks": lacks, "drained": drained}
