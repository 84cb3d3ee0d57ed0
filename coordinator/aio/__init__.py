"""The coordinator for asyncio: the same calls, awaited, so that the loop is never blocked."""

from coordinator.aio.coordinator import Coordinator
from coordinator.aio.held import Grab, Lease

__all__ = ["Coordinator", "Grab", "Lease"]
