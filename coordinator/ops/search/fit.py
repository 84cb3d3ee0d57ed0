"""Finds which living nodes may take a ready job, and what rejects the others.

Each node counts once, under the first cause that rejects it, in the order app, queue, labels, task, drains, full. So
the counts add up to the number of nodes, and an operator who removes a cause frees the nodes counted under it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from coordinator.core.fleet.nodes import Node
from coordinator.core.store.values import Json

_NAMED = 20  # nodes that the facts of a cause name


@dataclass(slots=True)
class Fit:
    """The result of judging the living nodes for one ready job. `nodes`: how many were judged. `rejected`: code and
    facts of each cause that rejects nodes. `full`: nodes that suit the job but have no free slot; `free`: nodes that
    suit the job and have one.
    """

    nodes: int
    rejected: list[tuple[str, Mapping[str, Json]]] = field(default_factory=list)
    full: list[Node] = field(default_factory=list)
    free: list[Node] = field(default_factory=list)

    @property
    def code(self) -> str:
        """The code of the cause why no node has taken the job yet."""
        if not self.nodes:
            return "waiting.fleet"
        return "waiting.claim" if self.free else "waiting.slot" if self.full else "waiting.node"

    @property
    def unserved(self) -> bool:
        """True where no node has what the job needs, not even a full or a draining one."""
        return not (self.full or self.free or any(code == "rejected.drains" for code, _ in self.rejected))


def fit(living: Sequence[Node], kind: Sequence[str], task: str) -> Fit:
    """Judge the living nodes for a job of this task. `kind`: the job's routing class, split into app, queue, labels."""
    result, left = Fit(len(living)), list(living)
    for code, lacks, test in _conditions(kind, task):
        out = [node for node in left if not test(node)]
        left = [node for node in left if test(node)]
        if out:
            result.rejected.append((code, _facts(out, len(living), lacks)))
    result.full = [node for node in left if taken(node) >= node.capacity]
    result.free = [node for node in left if taken(node) < node.capacity]
    if result.full:
        result.rejected.append(("rejected.full", _facts(result.full, len(living), "")))
    return result


def taken(node: Node) -> int:
    """Return the number of slots that jobs and ordinary tasks occupy on a node."""
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
    who = [slots(node) if taken(node) >= node.capacity and not lacks else node.name for node in out[:_NAMED]]
    return {"count": len(out), "nodes": nodes, "who": [*who], "lacks": lacks, "drained": drained}
