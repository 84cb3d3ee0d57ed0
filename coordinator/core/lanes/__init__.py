"""Lanes: all jobs and locks of a key wait in the line of its lane, which decides the order in which they run."""
