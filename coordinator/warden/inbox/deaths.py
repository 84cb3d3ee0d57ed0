"""Counts the processes that died while handling a message, so that a deadly message does not go round for ever.

Only a redelivered message is counted, since a process that took it may have died. For each such message, identified by
its text since most messages on RabbitMQ have no id, the coordinator's Redis has a set of processes. A process adds
itself before it handles the message, and deletes the set after that, whether the handler failed or not. So the set
contains the processes that died in between; other messages that they had taken are not blamed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from coordinator.errors import CoordinatorError
from coordinator.fleet import processes
from coordinator.store.client import Store
from coordinator.warden.inbox.queue import TakenMessage

MOST = 3  # processes that a message may end after the first
_KEPT = 24 * 3600  # seconds


class Deadly(CoordinatorError):
    """Raised for a message that ended its process again and again."""


@contextmanager
def counted(store: Store, queue: str, node: str, received: TakenMessage) -> Iterator[None]:
    """Count this process while it handles a message. Raises Deadly if the message ended too many before, and
    StoreUnavailable.
    """
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
