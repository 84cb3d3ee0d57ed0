"""Figures for Prometheus, read from Redis when it asks."""

from coordinator.metrics.collector import Collector, register

__all__ = ["Collector", "register"]
