"""Keyed jobs and locks beside the field: the same work, the same two processes, the same Redis, in turns."""
