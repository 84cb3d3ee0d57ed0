"""Computes how long a job waits between a failed attempt and the next one."""

from __future__ import annotations

import random

from coordinator.core.jobs.record import standing
from coordinator.core.jobs.spec import Policy, Spec
from coordinator.core.store.client import Store

LONGEST_DELAY = 300.0


def delay_of(spec: Spec, tries: int, usual: float) -> float:
    """Seconds until the next attempt, by the option `retry_delay` of the job. Without the option, a random time between
    0 and `usual` seconds, which double with each of the earlier `tries`, up to 300.
    """
    option = spec.get("retry_delay")
    if isinstance(option, list):
        return float(option[min(tries, len(option) - 1)])
    policy: Policy = option or {"first": usual, "cap": LONGEST_DELAY, "jitter": True}
    longest = min(policy["cap"], policy["first"] * 2 ** min(tries, 32))
    return random.uniform(0, longest) if policy["jitter"] else float(longest)


def delay_of_job(store: Store, job_id: str) -> float:
    """Read a job from Redis and return the seconds until its next attempt, where the last one was not ended by its own
    runner but, for example, by a supervisor.
    """
    job = standing(store, job_id)
    return delay_of(job.spec, job.tries, store.settings.retry_delay)
