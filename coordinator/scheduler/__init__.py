"""The beat's scheduler: any number of beats, each tick once.

`entry`: an entry as people write it; `schedules`, `quartz`: its instants. `sources`: where beats read entries;
`entry_plan`: how far a beat is with each, and which instant is due; `ticks`, `publisher`: how it sends that.
`beat`: the loop. `steering`, `history`: what operators and code do with entries, and see of them.
"""

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
