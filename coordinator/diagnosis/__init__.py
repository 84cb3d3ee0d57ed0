"""Looks at jobs and at Redis, for people. Nothing here writes."""

from typing import TYPE_CHECKING

from coordinator.later import handing_on

if TYPE_CHECKING:
    from coordinator.diagnosis.status import Status, list_jobs, status_of, warnings
    from coordinator.diagnosis.why import causes_of
else:
    __getattr__, __dir__ = handing_on(
        __name__, {"status": ("Status", "list_jobs", "status_of", "warnings"), "why": ("causes_of",)}
    )

__all__ = ["Status", "causes_of", "list_jobs", "status_of", "warnings"]
