"""Sends each heartbeat of a worker once.

Celery's timer tries a heartbeat for as long as the broker hangs. Meanwhile the worker's loop stands still: it does not
connect again, and looks hung to a probe. A heartbeat that comes late says nothing; the next follows in two seconds.
"""

from __future__ import annotations

from celery.worker.heartbeat import Heart

_usual = Heart._send


def _send(heart: Heart, event: str, retry: bool = True) -> object:
    return _usual(heart, event, retry and event != "worker-heartbeat")


def install() -> None:
    Heart._send = _send
