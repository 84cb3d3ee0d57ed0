"""Metrics for Prometheus, read from Redis at each scrape.

    from coordinator.ops.metrics import register

    register(coordinator)  # in a process that serves prometheus_client's registry

The counters live in Redis, so all processes show the same values: let Prometheus scrape only one process.
"""

from coordinator.ops.metrics.collector import Collector, register, registry_of

__all__ = ["Collector", "register", "registry_of"]
