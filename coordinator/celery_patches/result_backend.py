"""The call of a keyed task leaves the backend of the results alone.

Celery prepares for the result before it publishes a call. In Redis it subscribes: it tries for some 20 seconds where
that Redis is away, and for minutes where it hangs, also when the handle of an earlier call is collected. Nobody needs
it: `get()` subscribes, too, and then reads what there is. The queue of `rpc://` must be there before the result, so it
is declared in one bounded try.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from celery import Celery
from celery.result import task_join_will_block
from kombu.exceptions import OperationalError
from kombu.pools import producers

from coordinator.broker import brief_connection
from coordinator.errors import StoreUnavailable


@contextmanager
def leave_alone(app: Celery, keyed: type) -> Iterator[None]:
    """Inside this context, calls by producers of the class `keyed` make the app's backend prepare no more than it must.
    Raises StoreUnavailable.
    """
    backend = app.backend
    if hasattr(backend, "result_consumer") and "on_task_call" not in vars(backend):
        backend.on_task_call = partial(_on_task_call, app, keyed, backend.on_task_call)
    try:
        yield
    except OperationalError as error:  # Celery makes such an error of each that says that a connection is lost
        raise (error.__cause__ if isinstance(error.__cause__, StoreUnavailable) else error) from error


def _on_task_call(app: Celery, keyed: type, usual: partial[object], producer: object, task_id: str) -> None:
    if not isinstance(producer, keyed):
        usual(producer, task_id)
    elif hasattr(type(app.backend), "binding") and not task_join_will_block():
        _declare(app)


def _declare(app: Celery) -> None:
    """Declare the queue of the results, as the backend does, in one bounded try."""
    connection = brief_connection(app)
    with producers[connection].acquire(block=True, timeout=1.0) as lent:
        try:
            app.backend.binding(lent.channel).declare()
        except (OperationalError, *connection.connection_errors) as error:
            lent.connection.collect()
            raise StoreUnavailable(f"the broker, which keeps the results, does not answer: {error}") from error
