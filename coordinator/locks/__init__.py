"""Locks in plain code, and the leases of whoever acts now."""
