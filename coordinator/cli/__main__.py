"""`python -m coordinator.cli`: the command `coordinator`."""

from coordinator.cli.main import main

main()
