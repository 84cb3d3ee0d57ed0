"""For users' own suites: jobs run in place, at submit, without Redis. A plugin of pytest."""

from coordinator.testing.plugin import InPlace, coordinator_jobs

__all__ = ["InPlace", "coordinator_jobs"]
