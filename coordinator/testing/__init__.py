"""For users' own suites: jobs run in the test's thread, on a private Redis. A plugin of pytest."""

from coordinator.testing.plugin import coordinator_jobs, coordinator_no_redis

__all__ = ["coordinator_jobs", "coordinator_no_redis"]
