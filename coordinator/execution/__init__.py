"""One attempt, from doorbell to outcome."""

from coordinator.execution.attempt import Tracers
from coordinator.execution.runner import Runner

__all__ = ["Runner", "Tracers"]
