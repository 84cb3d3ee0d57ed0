"""The beat's scheduler: any number of beats, each tick once."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coordinator.scheduler.beat import Scheduler
else:

    def __getattr__(name: str) -> object:
        """`celery beat -S coordinator.scheduler.Scheduler` names it; a client that steers entries loads no beat."""
        if name != "Scheduler":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from coordinator.scheduler.beat import Scheduler

        return Scheduler


__all__ = ["Scheduler"]
