"""Works out how long a job waits before its next attempt."""

from __future__ import annotations

import random

from coordinator.jobs.record import standing
from coordinator.jobs.spec import Policy, Spec
from coordinator.store.client import Store

LONGEST_DELAY = 300.0


def delay_of(spec: Spec, tries: int, usual: float) -> float:
    """Seconds until the next attempt, by the job's `retry_delay`, else doubling from `usual` with full jitter."""
    option = spec.get("retry_delay")
    if isinstance(option, list):
        return float(option[min(tries, len(option) - 1)])
    policy: Policy = option or {"first": usual, "cap": LONGEST_DELAY, "jitter": True}
    longest = min(policy["cap"], policy["first"] * 2 ** min(tries, 32))
    return random.uniform(0, longest) if policy["jitter"] else float(longest)


def delay_of_job(store: Store, job_id: str) -> float:
    """Seconds until the next attempt of a job that its runner did not end, but a clock, for instance."""
    job = standing(store, job_id)
    return delay_of(job.spec, job.tries, store.settings.retry_delay)
