"""Logs double faults: a rollback failed too, and somebody must look."""

from __future__ import annotations

import logging

from coordinator.jobs.spec import ErrorRecord

logger = logging.getLogger(__name__)


def log_double_fault(job_id: str, key: str, error: ErrorRecord | None, fault: ErrorRecord | None) -> None:
    """Log one ERROR line with both causes. The process that saw the rollback fail calls it."""
    logger.error(
        "double fault: job %s (%s) failed: %s; its rollback failed too: %s", job_id, key, _brief(error), _brief(fault)
    )


def _brief(error: ErrorRecord | None) -> str:
    return f"{error.get('type')}: {error.get('message')}" if error else "None"
