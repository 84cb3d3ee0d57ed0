"""The beat's scheduler: any number of beats, each tick once."""

from typing import TYPE_CHECKING

from coordinator.later import handing_on

if TYPE_CHECKING:
    from coordinator.scheduler.beat import Scheduler
    from coordinator.scheduler.entries import Entry
else:
    __getattr__, __dir__ = handing_on(__name__, {"beat": ("Scheduler",), "entries": ("Entry",)})

__all__ = ["Entry", "Scheduler"]
