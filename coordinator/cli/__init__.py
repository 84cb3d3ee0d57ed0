"""The command `coordinator`."""

from coordinator.cli.main import cli, main

__all__ = ["cli", "main"]
