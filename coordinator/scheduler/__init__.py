"""The beat's scheduler: any number of beats, each tick once."""

from coordinator.scheduler.beat import Scheduler
from coordinator.scheduler.entries import Entry

__all__ = ["Entry", "Scheduler"]
