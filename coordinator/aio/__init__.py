"""The coordinator for asyncio: the same calls, awaited; the loop goes on meanwhile."""

from coordinator.aio.coordinator import Coordinator
from coordinator.aio.held import Grab, Lease

__all__ = ["Coordinator", "Grab", "Lease"]
