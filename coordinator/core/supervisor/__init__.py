"""The supervisor: a process beside each worker that renews leases, stops jobs past their limits, and sweeps. It
connects only to the coordinator's Redis, so that no broker or result backend can delay it.
"""

from coordinator.core.supervisor.supervisor import Supervisor

__all__ = ["Supervisor"]
