"""Claims ready jobs after a wake-up, runs one attempt at each, and reports the outcome to Redis."""

from coordinator.core.runner.attempt import Tracers
from coordinator.core.runner.runner import Runner

__all__ = ["Runner", "Tracers"]
