"""Sets the limits of a component's lanes as it declares them."""

from coordinator import Coordinator
from tasks.components.declaration import Component

BY = "coordinator"


def set_limits(coordinator: Coordinator, component: Component) -> None:
    """Set the limits that changed in the declaration since the last call. Limits of an operator stay otherwise.

    Redis keeps the declared limits beside those of the lanes. A Redis that lost its data lost both, and the next run
    sets them again, except where an operator has set one since.
    """
    store, why = coordinator.store, f"declared by {component.name}-{component.version}"
    name, limits = store.key("declared"), component.limits
    for (lane, limit), known in zip(limits.items(), store.read("HMGET", name, *limits), strict=True):
        if int(known or 1) == limit:
            continue
        limited = None if known else coordinator.lane(lane, 1).limited
        if limited is None or limited["by"] == BY:
            coordinator.set_limit(lane, limit, why=why, by=BY)
        store.read(*(("HDEL", name, lane) if limit == 1 else ("HSET", name, lane, limit)))
