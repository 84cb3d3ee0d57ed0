"""The beat's scheduler: any number of beats, each tick once."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coordinator.scheduler.beat import Scheduler
    from coordinator.scheduler.entries import Entry

__all__ = ["Entry", "Scheduler"]
_HOMES = {"Entry": "coordinator.scheduler.entries", "Scheduler": "coordinator.scheduler.beat"}


def __getattr__(name: str) -> Any:
    """Hand on a name at its first use: a client, which submits, imports no beat of Celery's."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'coordinator.scheduler' has no attribute {name!r}")
