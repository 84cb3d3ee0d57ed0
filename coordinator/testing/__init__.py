"""For users' own suites: jobs run in the test's thread, on a private Redis. A plugin of pytest."""

from coordinator.testing.plugin import coordinator_jobs

__all__ = ["coordinator_jobs"]
