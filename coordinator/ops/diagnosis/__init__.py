"""Explains why jobs wait, and finds faults of an installation. The modules only read from Redis."""
