"""Counts the processes that died while they handled a message, so that a message that kills its process is not
redelivered for ever.

Only redelivered messages are counted. For each, the coordinator's Redis has a set of processes, whose key is a hash of
the message's text, since most messages on RabbitMQ have no id. A process adds its identity before it calls the handler,
and deletes the set when the handler has returned or raised. So the set contains the processes that died during the
handler. Messages that a process had taken but not begun to handle when it died are not counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from coordinator.core.fleet import processes
from coordinator.core.store.client import Store
from coordinator.errors import CoordinatorError
from coordinator.inbox.queue import TakenMessage

MOST = 3  # redeliveries of a message during which its process may die
_KEPT = 24 * 3600  # seconds after which Redis forgets which processes died while they handled a message


class Deadly(CoordinatorError):
    """Raised for a message whose processes died again and again while they handled it."""


@contextmanager
def counted(store: Store, queue: str, node: str, received: TakenMessage) -> Iterator[None]:
    """Count this process as one that may die, for as long as the `with` block handles the redelivered message.

    Does nothing at the first delivery. Raises Deadly if four processes have died with this message, and
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
            raise Deadly(f"its process died while it handled the message, {MOST + 1} times in a row")
        yield
    finally:
        store.read("DEL", key)
