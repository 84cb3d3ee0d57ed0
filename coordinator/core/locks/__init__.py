"""Locks: plain code holds the lane of a key, as a job does, for as long as it renews a lease.

    with coordinator.lock("order/42") as lease:
        write(order, fence=lease.fence)

A lock waits in the same line as the jobs of its key. Since a lease may be lost, pass the fence with each write: the
data store then refuses writes of a former holder.
"""
