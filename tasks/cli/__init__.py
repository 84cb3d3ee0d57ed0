"""The service's own commands of `coordinator`."""

from tasks.cli import main

__all__ = ["main"]
