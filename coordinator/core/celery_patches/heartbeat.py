"""Makes a worker try to send each heartbeat event only once.

While the broker hangs, Celery retries the publish of a heartbeat in the worker's event loop, which is blocked
meanwhile: the worker does not connect again, and looks hung to a liveness probe. A late heartbeat is of no use; the
next one follows in two seconds.
"""

from __future__ import annotations

from celery.worker.heartbeat import Heart

_usual = Heart._send


def _send(heart: Heart, event: str, retry: bool = True) -> object:
    return _usual(heart, event, retry and event != "worker-heartbeat")


def install() -> None:
    """Replace the method of Celery's `Heart` that sends events, in this process."""
    Heart._send = _send
