"""Keeps calls of keyed tasks from waiting for the result backend.

Before Celery publishes a call, it prepares the backend for the result. With Redis as backend it subscribes to a
channel, and retries for some 20 seconds where that Redis is down, and for minutes where it hangs. The same happens when
the AsyncResult of an earlier call is garbage collected. The subscription is not needed: `get()` subscribes, too, and
then reads the result. With the backend `rpc://`, the queue of the results must exist before a result is sent, so this
queue is declared, in one try of bounded length.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from celery import Celery
from celery.result import task_join_will_block
from kombu.exceptions import OperationalError
from kombu.pools import producers

from coordinator.core.broker import brief_connection
from coordinator.errors import StoreUnavailable


@contextmanager
def leave_alone(app: Celery, keyed: type) -> Iterator[None]:
    """Inside this block, a call that is published by a producer of the class `keyed` does not subscribe to its result;
    calls by other producers do so as usual. Raises StoreUnavailable where a server that the call needs does not answer.
    """
    backend = app.backend
    if hasattr(backend, "result_consumer") and "on_task_call" not in vars(backend):
        backend.on_task_call = partial(_on_task_call, app, keyed, backend.on_task_call)
    try:
        yield
    except OperationalError as error:  # Celery raises this in place of each connection error
        raise (error.__cause__ if isinstance(error.__cause__, StoreUnavailable) else error) from error


def _on_task_call(app: Celery, keyed: type, usual: partial[object], producer: object, task_id: str) -> None:
    if not isinstance(producer, keyed):
        usual(producer, task_id)
    elif hasattr(type(app.backend), "binding") and not task_join_will_block():
        _declare(app)


def _declare(app: Celery) -> None:
    """Declare the queue of the results, as the backend `rpc://` does, but in one try of bounded length."""
    connection = brief_connection(app)
    with producers[connection].acquire(block=True, timeout=1.0) as lent:
        try:
            app.backend.binding(lent.channel).declare()
        except (OperationalError, *connection.connection_errors) as error:
            lent.connection.collect()
            raise StoreUnavailable(f"the broker, which keeps the results, does not answer: {error}") from error
