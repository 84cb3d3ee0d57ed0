"""The verbs for nodes: drain and undrain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from coordinator.core.author import Acting
from coordinator.core.client.client import Client
from coordinator.core.jobs.validation import checks_arguments
from coordinator.core.verbs import NODE, Answer, AnyCoordinator, Given, verb

if TYPE_CHECKING:
    from coordinator.ops.verbs.drain_plan import DrainPlan


def _drained(coordinator: AnyCoordinator, given: Given, new: bool) -> Answer:
    node = given["node"]
    alive = node in [living.name for living in coordinator.nodes()]
    unknown = "" if alive else "; no node of that name is alive, and it gets no jobs when it comes"
    return {"node": node, "drained": new}, f"{node} {'drains' if new else 'was drained already'}{unknown}"


def _undrained(_: object, given: Given, was: bool) -> Answer:
    node = given["node"]
    return {"node": node, "undrained": was}, f"{node} {'takes jobs again' if was else 'was not drained'}"


def _drain_planned(coordinator: AnyCoordinator, given: Given) -> list[str]:
    plan: DrainPlan = coordinator.plan.drain(given["node"])
    return plan.lines


def _undrain_planned(coordinator: AnyCoordinator, given: Given) -> list[str]:
    plan: DrainPlan = coordinator.plan.undrain(given["node"])
    return plan.lines


@checks_arguments
class NodeVerbs(Client):
    @verb(NODE, tell=_drained, command="nodes drain", plan=_drain_planned)
    def drain(self, node: str, **acting: Unpack[Acting]) -> bool:
        """Drain a node: it, and any node that starts later under its name, gets no new jobs until `undrain`. The jobs
        that run on the node end there, or go to other nodes after `drain_timeout` seconds.

        These jobs do not count as lost. Returns False where the node was drained already. Raises InvalidJob.
        """
        return self._core.drain(node, True, **acting)

    @verb(NODE, tell=_undrained, command="nodes undrain", plan=_undrain_planned)
    def undrain(self, node: str, **acting: Unpack[Acting]) -> bool:
        """Give a drained node jobs again, and wake the node if jobs wait for it.

        Returns False where the node was not drained.
        """
        return self._core.drain(node, False, **acting)
