"""Trouble that somebody wants to be told of without asking, as a signal like Celery's.

    from coordinator import trouble_seen

    @trouble_seen.connect
    def tell(trouble, **_): ...

A node's errands send it: at least once for each trouble, and by one node of the job's app. A handler that raises is
called again after half a minute, for an hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from celery.utils.dispatch import Signal

Kind = Literal["held", "failed", "double_fault", "waits", "no_node"]


@dataclass(frozen=True, slots=True)
class Trouble:
    """One trouble.

    `kind`: held (a job waits for an operator), failed (for good), double_fault (and its rollback failed,
    too), waits (for longer than `long_wait`; the longest wait of each reason is told), no_node (no node has the task of
    jobs that wait; then there is no `job_id`). `message`: one sentence. `at`: when it was so.
    """

    kind: Kind
    message: str
    job_id: str
    key: str
    task: str
    at: datetime


trouble_seen = Signal(name="trouble_seen", providing_args={"trouble"})
