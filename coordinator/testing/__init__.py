"""For users' own suites: jobs run in place, at submit, without Redis. A plugin of pytest."""

from coordinator.testing.plugin import coordinator_jobs

__all__ = ["coordinator_jobs"]
