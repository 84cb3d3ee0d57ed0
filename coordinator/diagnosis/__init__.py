"""Looks at jobs and at Redis, for people. Nothing here writes."""

from coordinator.diagnosis.status import Status, list_jobs, status_of, warnings
from coordinator.diagnosis.why import causes_of

__all__ = ["Status", "causes_of", "list_jobs", "status_of", "warnings"]
