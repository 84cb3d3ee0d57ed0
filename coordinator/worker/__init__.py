"""The parts that the coordinator adds to a Celery worker."""

from typing import TYPE_CHECKING

from coordinator.later import handing_on

if TYPE_CHECKING:
    from coordinator.worker.bootstep import Consumer, WardenStep
else:
    __getattr__, __dir__ = handing_on(__name__, {"bootstep": ("Consumer", "WardenStep")})

__all__ = ["Consumer", "WardenStep"]
