"""Counts the processes that ended in the handling of one message, so that it does not go round for ever.

Only a message that comes again is counted: a process that had received it is gone. The coordinator's Redis has a set of
such processes for each message, by its text, since RabbitMQ gives most messages no name. A process puts itself into it
before it handles the message, and removes the set after that, however the handler ended. So those stay in it that ended
in between; what else they had received is not blamed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from coordinator.errors import CoordinatorError
from coordinator.fleet import processes
from coordinator.inbox.queue import Received
from coordinator.store.client import Store

MOST = 3  # processes that one message may end after its first one
_KEPT = 24 * 3600  # seconds


class Deadly(CoordinatorError):
    """A message that ended its process again and again."""


@contextmanager
def counted(store: Store, queue: str, node: str, received: Received) -> Iterator[None]:
    """Around the handling of a message. Raises Deadly instead of handling it once more, and StoreUnavailable."""
    if not received.again:
        yield
        return
    key = store.key("deaths", queue, hashlib.sha256(received.message).hexdigest()[:32])
    store.read("SADD", key, f"{node} {processes.identity()}")
    store.read("EXPIRE", key, _KEPT)
    try:
        if int(store.read("SCARD", key)) > MOST:
            raise Deadly(f"the process that handled it ended, {MOST + 1} times one after the other")
        yield
    finally:
        store.read("DEL", key)
