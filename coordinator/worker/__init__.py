"""The parts that the coordinator adds to a Celery worker."""

from coordinator.worker.bootstep import Consumer, WardenStep

__all__ = ["Consumer", "WardenStep"]
