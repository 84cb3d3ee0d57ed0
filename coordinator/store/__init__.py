"""The one door to Redis."""

from typing import TYPE_CHECKING

from coordinator.later import handing_on

if TYPE_CHECKING:
    from coordinator.store.client import Store
    from coordinator.store.times import milliseconds, seconds
    from coordinator.store.wire import Arg
else:
    __getattr__, __dir__ = handing_on(
        __name__, {"client": ("Store",), "times": ("milliseconds", "seconds"), "wire": ("Arg",)}
    )

__all__ = ["Arg", "Store", "milliseconds", "seconds"]
