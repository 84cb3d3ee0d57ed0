"""A scheduler for Celery beat: any number of beat processes send each tick (an entry's instant) once.

    $ celery -A shop beat -S coordinator.scheduler.Scheduler

It replaces Celery's own scheduler and reads the same `beat_schedule`. A task of an entry without a key may be published
twice, under one id, if the beat dies at the moment of publishing.

Modules: `entry`: the class of an entry; `schedules`, `quartz`: compute the instants of a schedule; `sources`: where
beats read entries; `entry_plan`: which instant of an entry is due; `ticks`, `publisher`: how a beat sends a tick;
`beat`: the beat's loop; `steering`: how operators and code change entries; `history`: the last ticks of an entry.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coordinator.scheduler.beat import Scheduler
else:

    def __getattr__(name: str) -> object:
        """Import the class `Scheduler` at its first use, so that a client that only changes entries does not import
        Celery's beat.
        """
        if name != "Scheduler":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from coordinator.scheduler.beat import Scheduler

        return Scheduler


__all__ = ["Scheduler"]
