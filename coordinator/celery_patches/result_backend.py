"""The call of a keyed task asks the backend of the results for as long as it asks the coordinator's Redis.

Celery prepares for the result before it publishes a call: it subscribes in Redis, or declares its queue at the broker
(`rpc://`). Where that is away, it tries for some 20 seconds and raises a RuntimeError; where that hangs, for minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery
from celery.result import task_join_will_block
from kombu.exceptions import OperationalError
from kombu.pools import producers

from coordinator.broker.transport import brief_connection
from coordinator.errors import StoreUnavailable


@contextmanager
def asked_for(app: Celery, seconds: float) -> Iterator[None]:
    """Inside this context, the backend of this thread tries for so long. Raises StoreUnavailable."""
    backend = app.backend
    if hasattr(type(backend), "binding"):
        backend.on_task_call = _declaring(app)
        try:
            yield
        except OperationalError as error:  # Celery makes such an error of each that says that a connection is lost
            raise (error.__cause__ if isinstance(error.__cause__, StoreUnavailable) else error) from error
    elif hasattr(getattr(backend, "result_consumer", None), "_ensure"):
        with _subscribing(backend, seconds):
            yield
    else:
        yield


def _declaring(app: Celery) -> Callable[[object, str], None]:
    def on_task_call(producer: object, task_id: str) -> None:
        """Declare the queue of the results, as the backend does, in one bounded try."""
        if task_join_will_block():
            return
        connection = brief_connection(app)
        with producers[connection].acquire(block=True, timeout=1.0) as lent:
            try:
                app.backend.binding(lent.channel).declare()
            except (OperationalError, *connection.connection_errors) as error:
                lent.connection.collect()
                raise StoreUnavailable(f"the broker, which keeps the results, does not answer: {error}") from error

    return on_task_call


@contextmanager
def _subscribing(backend: Any, seconds: float) -> Iterator[None]:
    """Two tries of half the time each: the second one connects anew."""
    consumer, options = backend.result_consumer, backend.client.connection_pool.connection_kwargs
    usual, timeout, till = consumer._ensure, options.get("socket_timeout"), time.monotonic() + seconds

    def ensure(function: Callable[..., object], args: tuple[object, ...], **policy: object) -> object:
        return usual(function, args, **policy, timeout=max(0.01, till - time.monotonic()))

    consumer._ensure, options["socket_timeout"] = ensure, min(timeout or seconds, seconds / 2)
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error.__cause__, backend.connection_errors):
            raise
        raise StoreUnavailable(f"the Redis of the results does not answer: {error.__cause__}") from error
    finally:
        consumer._ensure, options["socket_timeout"] = usual, timeout
