"""Removes cancelled timers from kombu's heap.

Celery cancels the timer of a time limit when its task ends, but keeps it until it would have been due. A runner has
a limit of a year, so each would cost a worker 600 bytes.
"""

from __future__ import annotations

from kombu.asynchronous.timer import Timer

_MOST = 1000


def forget_cancelled(timer: Timer) -> None:
    """Rebuild the heap without cancelled timers once it has grown long."""
    if len(timer) < _MOST:
        return
    live = [scheduled for scheduled in timer.queue if not scheduled.entry.canceled]
    timer.clear()
    for scheduled in live:
        timer.enter_at(scheduled.entry, scheduled.eta, scheduled.priority)
