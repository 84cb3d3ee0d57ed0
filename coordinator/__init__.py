"""Keyed job coordination for Celery: name what a job works on, and one job at a time works on it, in order."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coordinator.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Hand on each public name at its first use: the clock of a node imports parts of this package, and no Celery."""
    public = import_module("coordinator.public")
    if name == "__all__" or name in public.__all__:
        return getattr(public, name)
    if name in globals():  # a module that came in with the names
        return globals()[name]
    raise AttributeError(f"module 'coordinator' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *import_module("coordinator.public").__all__})
