"""Lanes decide which job's turn it is."""
