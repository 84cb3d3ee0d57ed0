"""The call of a keyed task asks the Redis of the results for as long as it asks the coordinator's.

Celery subscribes to the result before it publishes a call. Where that Redis is away, it tries for some 20 seconds, and
then raises a RuntimeError.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from coordinator.errors import StoreUnavailable


@contextmanager
def asked_for(backend: Any, seconds: float) -> Iterator[None]:
    """Inside this context, the backend of this thread tries to subscribe for so long. Raises StoreUnavailable."""
    consumer = getattr(backend, "result_consumer", None)
    usual = getattr(consumer, "_ensure", None)
    if consumer is None or usual is None:  # another backend than Redis
        yield
        return
    consumer._ensure = partial(usual, timeout=seconds)
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error.__cause__, backend.connection_errors):
            raise
        raise StoreUnavailable(f"the Redis of the results does not answer: {error.__cause__}") from error
    finally:
        consumer._ensure = usual
