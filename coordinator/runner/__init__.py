"""Runs attempts, from the wake-up to the outcome."""

from coordinator.runner.attempt import Tracers
from coordinator.runner.runner import Runner

__all__ = ["Runner", "Tracers"]
