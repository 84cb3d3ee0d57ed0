"""Bounds how long a process of the prefork pool that is told to end waits until the worker has read its last results.

A worker that shuts down forgets the messages that a pool process has not reported as accepted yet, and reads nothing
more from that process. The process would wait 30 seconds for the worker, and a process manager such as systemd might
kill the whole node before.
"""

from __future__ import annotations

from billiard import pool

PATIENCE = 5.0  # seconds that a process waits


def bound() -> None:
    """Set the bound in billiard, from which the pool processes inherit it; to be called before they are forked."""
    pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT = round(PATIENCE / pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_INTERVAL)
