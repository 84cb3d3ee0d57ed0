"""The signal `alert_raised`, which tells an app's handlers of jobs that need an operator's attention.

    from coordinator import alert_raised

    @alert_raised.connect
    def notify(alert, **_):
        print(alert.kind, alert.message)

The maintenance process of one node of the app sends each alert, at least once: so connect the handler in a module that
the app's workers import. A handler that raises is called again every 30 seconds, for an hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from celery.utils.dispatch import Signal

Kind = Literal["held", "failed", "double_fault", "waits", "no_node"]


@dataclass(frozen=True, slots=True)
class Alert:
    """What happened to a job, as handlers of `alert_raised` get it.

    `kind`: held (the failed job keeps its lanes until an operator decides), failed (the job has failed, without
    further attempts), double_fault (its rollback failed, too), waits (the job has waited for longer than the setting
    `long_wait`; sent for the longest wait of each reason), no_node (jobs wait for a task that no node has).
    `message`: one sentence for people. `job_id`: "" for no_node. `at`: when the job ended, or the wait was noticed.
    """

    kind: Kind
    message: str
    job_id: str
    key: str
    task: str
    at: datetime


alert_raised = Signal(name="alert_raised", providing_args={"alert"})
