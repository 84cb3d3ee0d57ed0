"""Removes cancelled timers from the heap of kombu's timer in a worker.

Celery cancels the timer of a time limit when the task ends, but leaves the entry in the heap until it would have been
due. The runner's task has a time limit of a year, so each runner would leave 600 bytes in the worker.
"""

from __future__ import annotations

from kombu.asynchronous.timer import Timer

_MOST = 1000


def forget_cancelled(timer: Timer) -> None:
    """Rebuild the heap of a timer without the cancelled entries, once it has 1000 entries or more."""
    if len(timer) < _MOST:
        return
    live = [scheduled for scheduled in timer.queue if not scheduled.entry.canceled]
    timer.clear()
    for scheduled in live:
        timer.enter_at(scheduled.entry, scheduled.eta, scheduled.priority)
