"""Declares the quotas of components."""

from coordinator import Coordinator
from coordinator.extending import QuotaClient
from tasks.components.declaration import Component

BY = "coordinator"
RUNS = "component/*"


def declare_runs(coordinator: Coordinator) -> None:
    """Let one run of each component poll at a time. Where it is declared so, this writes nothing."""
    coordinator.quota(RUNS, concurrency=1, why="one run of a component polls at a time", by=BY)


def declare(coordinator: Coordinator, component: Component) -> None:
    """Declare the component's quota if its declaration has changed since the last call. Else an operator's stays.

    Redis keeps the declared number beside the quota. If Redis loses its data, it loses both, and the next run declares
    the quota again, unless an operator has done so since.
    """
    store, name, units = coordinator.store, component.name, component.simultaneous_processes
    (quota,) = QuotaClient(store).read_many([name])
    known = int(store.read("HGET", store.key("declared"), name) or 0)
    if quota.declared and known == units:
        return
    if known or not quota.declared or quota.declared["by"] == BY:
        why = f"declared by {name}-{component.version}"
        coordinator.quota(name, concurrency=units, why=why, by=BY)
    store.read("HSET", store.key("declared"), name, units)
