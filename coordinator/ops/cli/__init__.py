"""The command `coordinator` with its subcommands."""
