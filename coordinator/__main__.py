"""Runs the command line program `coordinator` as `python -m coordinator`."""

from coordinator.ops.cli.main import main

main()
