"""Defines `TimedOut`. It has a module of its own, since importing its base class from billiard loads multiprocessing,
which a process that only submits jobs does not need.
"""

from __future__ import annotations

from billiard.exceptions import TimeLimitExceeded

from coordinator.errors import CoordinatorError


class TimedOut(CoordinatorError, TimeoutError, TimeLimitExceeded):
    """The recorded error of a job when an attempt exceeds its `time_limit`. A subclass of Celery's TimeLimitExceeded,
    so that `except TimeLimitExceeded` catches it.
    """
