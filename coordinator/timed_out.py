"""`TimedOut`, apart from the other errors: Celery's own loads multiprocessing, which clients do without."""

from __future__ import annotations

from billiard.exceptions import TimeLimitExceeded

from coordinator.errors import CoordinatorError


class TimedOut(CoordinatorError, TimeoutError, TimeLimitExceeded):
    """The recorded error of a job when an attempt exceeds its `time_limit`; Celery's own TimeLimitExceeded, too."""
