"""The commands that the service adds to the command `coordinator`."""

from tasks.cli import main

__all__ = ["main"]
