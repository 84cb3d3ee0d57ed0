"""The one door to Redis."""

from coordinator.store.client import Store
from coordinator.store.times import milliseconds, seconds
from coordinator.store.wire import Arg

__all__ = ["Arg", "Store", "milliseconds", "seconds"]
