"""Grabs: one process among many works on an instance of a key."""
