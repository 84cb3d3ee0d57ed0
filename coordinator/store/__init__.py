"""The one door to Redis."""

from coordinator.store.client import Arg, Store
from coordinator.store.times import milliseconds, seconds

__all__ = ["Arg", "Store", "milliseconds", "seconds"]
