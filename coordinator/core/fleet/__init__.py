"""The records of all nodes in Redis; and the status file, measures and processes of the worker on this machine."""
