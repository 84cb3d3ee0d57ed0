"""The limits that a component's lanes have by its declaration."""

from coordinator import Coordinator
from tasks.components.declaration import Component

BY = "coordinator"


def set_limits(coordinator: Coordinator, component: Component) -> None:
    """A declaration that changed says the limits of its lanes; else an operator's stay.

    Redis keeps what was declared beside the limits themselves. So where it has lost them it has lost both, and the next
    run sets them again. One that an operator has set since stays.
    """
    store, why = coordinator.store, f"declared by {component.name}-{component.version}"
    name, wanted = store.key("declared"), component.limits
    for (lane, limit), known in zip(wanted.items(), store.read("HMGET", name, *wanted), strict=True):
        if int(known or 1) == limit:
            continue
        limited = None if known else coordinator.lane(lane, 1).limited
        if limited is None or limited["by"] == BY:
            coordinator.set_limit(lane, limit, why=why, by=BY)
        store.read(*(("HDEL", name, lane) if limit == 1 else ("HSET", name, lane, limit)))
