"""Lanes: they decide whose turn it is."""

from coordinator.lanes.lane import Lane
from coordinator.lanes.lanes import Lanes
from coordinator.lanes.leases import Lease
from coordinator.lanes.locks import Locks
from coordinator.lanes.sorter import Sorter, Sorters, Sorting

__all__ = ["Lane", "Lanes", "Lease", "Locks", "Sorter", "Sorters", "Sorting"]
