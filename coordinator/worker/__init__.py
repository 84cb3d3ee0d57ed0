"""The parts that the coordinator adds to a Celery worker."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coordinator.worker.bootstep import Consumer, WardenStep

__all__ = ["Consumer", "WardenStep"]


def __getattr__(name: str) -> Any:
    """Hand on a name at its first use: a client, which submits, imports no worker of Celery's."""
    if name in __all__:
        return getattr(import_module("coordinator.worker.bootstep"), name)
    raise AttributeError(f"module 'coordinator.worker' has no attribute {name!r}")
