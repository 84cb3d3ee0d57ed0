"""The request of the runner's task: logs the death of its process as a warning only, since the clock kills runners, or
they end themselves, and both log why.
"""

from __future__ import annotations

import logging

from billiard.einfo import ExceptionInfo, ExceptionWithTraceback
from celery.exceptions import WorkerLostError
from celery.worker.request import Request
from celery.worker.state import task_ready

logger = logging.getLogger(__name__)


class QuietRequest(Request):
    def on_failure(self, exc_info: ExceptionInfo, send_failed_event: bool = True, return_ok: bool = False) -> None:
        error = exc_info.exception
        if isinstance(error, ExceptionWithTraceback):
            error = error.exc
        if isinstance(error, WorkerLostError | SystemExit):  # billiard 4.3 tells of the second before the death
            task_ready(self)
            logger.warning("the process of a runner has ended, the clock looks after its job: %s", error)
            return
        super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)
