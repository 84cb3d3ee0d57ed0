"""The coordinator for asyncio: the methods of `coordinator.Coordinator` as coroutines, which never block the event
loop.

    jobs = aio.Coordinator(coordinator)
    submission = await jobs.submit("order/42", ship.s(42))

The library's blocking code runs in greenlets: install `celery-coordinator[asyncio]`.
"""

from coordinator.aio.coordinator import Coordinator
from coordinator.aio.held import Grab, Lease
from coordinator.aio.job import CurrentJob, current_job

__all__ = ["Coordinator", "CurrentJob", "Grab", "Lease", "current_job"]
