"""Lanes: they decide whose turn it is."""

from typing import TYPE_CHECKING

from coordinator.later import handing_on

if TYPE_CHECKING:
    from coordinator.lanes.lane import Lane
    from coordinator.lanes.lanes import Lanes
    from coordinator.lanes.leases import Lease
    from coordinator.lanes.locks import Locks
    from coordinator.lanes.sorter import Sorter, Sorters, Sorting
else:
    __getattr__, __dir__ = handing_on(
        __name__,
        {
            "lane": ("Lane",),
            "lanes": ("Lanes",),
            "leases": ("Lease",),
            "locks": ("Locks",),
            "sorter": ("Sorter", "Sorters", "Sorting"),
        },
    )

__all__ = ["Lane", "Lanes", "Lease", "Locks", "Sorter", "Sorters", "Sorting"]
