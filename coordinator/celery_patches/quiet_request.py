"""The request of our own tasks: its message is JSON, and the death of a runner's process a warning only, since the
clock kills runners, or they end themselves, and both log why.
"""

from __future__ import annotations

import logging

from billiard.einfo import ExceptionInfo, ExceptionWithTraceback
from celery.exceptions import WorkerLostError
from celery.worker.request import Request
from celery.worker.state import task_ready
from kombu.message import Message

logger = logging.getLogger(__name__)


class QuietRequest(Request):
    def __init__(self, message: Message, *, body: object, decoded: bool, **options: object) -> None:
        """Decodes the message here: a process of the pool would refuse it in an app that accepts no JSON."""
        super().__init__(message, body=body if decoded else message.payload, decoded=True, **options)

    def on_failure(self, exc_info: ExceptionInfo, send_failed_event: bool = True, return_ok: bool = False) -> None:
        error = exc_info.exception
        if isinstance(error, ExceptionWithTraceback):
            error = error.exc
        if isinstance(error, WorkerLostError | SystemExit):  # billiard 4.3 tells of the second before the death
            task_ready(self)
            logger.warning("the process of a runner has ended, the clock looks after its job: %s", error)
            return
        super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)
