"""The clock of a node: a process that talks only to the coordinator's Redis, so that nothing else can delay it."""

from coordinator.warden.clock.clock import Clock

__all__ = ["Clock"]
