"""Quotas: numbers of units that jobs use while they run."""
