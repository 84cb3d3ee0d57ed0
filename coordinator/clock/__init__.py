"""The clock of a node: a process that talks to the coordinator's Redis alone, so nothing else can hold it up."""

from coordinator.clock.clock import Clock

__all__ = ["Clock"]
