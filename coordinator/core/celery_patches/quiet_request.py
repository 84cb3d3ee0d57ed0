"""The request class of the coordinator's own tasks, such as the runner. The death of the process in which one runs is
logged only as a warning, since the supervisor or the runner, whichever ended the process, has logged the reason.
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
    """The request of a task of the coordinator: decodes its JSON in the worker, and reports no failure of the app where
    the process of the task ends.
    """

    def __init__(self, message: Message, *, body: object, decoded: bool, **options: object) -> None:
        """Decode the message in the worker: a pool process would refuse JSON where `accept_content` lacks it."""
        super().__init__(message, body=body if decoded else message.payload, decoded=True, **options)

    def on_failure(self, exc_info: ExceptionInfo, send_failed_event: bool = True, return_ok: bool = False) -> None:
        error = exc_info.exception
        if isinstance(error, ExceptionWithTraceback):
            error = error.exc
        if isinstance(error, WorkerLostError | SystemExit):  # billiard 4.3 reports SystemExit before the death
            task_ready(self)
            logger.warning("the process of a runner has ended; the supervisor handles the job that it ran: %s", error)
            return
        super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)
