"""Bounds how long a pool process that is told to end waits for its worker to read its last results.

A worker that shuts down forgets the messages that a process has and has not reported as accepted yet, and then reads no
more of that process. The process would wait 30 s for it; a supervisor kills the node long before.
"""

from __future__ import annotations

from billiard import pool

PATIENCE = 5.0  # seconds


def bound() -> None:
    """To be called before the pool is forked."""
    pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT = round(PATIENCE / pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_INTERVAL)
