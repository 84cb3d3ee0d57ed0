"""Figures for Prometheus, read from Redis when it asks."""

from coordinator.metrics.collector import Collector, register, registry_of

__all__ = ["Collector", "register", "registry_of"]
