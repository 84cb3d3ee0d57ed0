"""The instances of grabs as Redis has them: who works on each, or did, and how it ended.

Each instance is a lane of its own. A process that wins holds it as a lock in plain code; a job that was submitted with
the instance stands in it. A record in Redis remembers the winner, and the end for as long as `keep` says. An instance
is *abandoned* while its record says that it runs and nobody holds its lane: the next one that asks takes it over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from coordinator.errors import StoreRefused, StoreUnavailable, WaitTimeout
from coordinator.jobs.instances import Grabbed, found, lane_of, names_in
from coordinator.jobs.record import Job
from coordinator.store.client import Store


def look(store: Store, key: str, instance: str) -> Grabbed:
    """The instance as it is now."""
    return found(key, instance, store.step("grab_look", lane_of(key, instance)))


def all_of(store: Store, key: str | None, most: int) -> list[Grabbed]:
    """The instances of a key, or of all keys, the latest first; at most so many of each key."""
    keys = [one.decode() for one in store.read("ZRANGE", store.key("grabs"), 0, -1)] if key is None else [key]
    instances = [
        (one, instance.decode())
        for one in sorted(keys)
        for instance in store.read("ZRANGE", store.key("grabs", one), 0, most - 1, "REV")
    ]
    replies = store.step_many("grab_look", [(lane_of(*one),) for one in instances]) if instances else []
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    both = [found(*one, reply) for one, reply in zip(instances, replies, strict=True)]
    return [one for one in both if one.state]


def end_of_process(store: Store, job: Job, deadline: float | None) -> Job:
    """The job of a process that won an instance, once that has ended, or the process is gone. Raises WaitTimeout."""
    key, instance = names_in(job.keys[0])
    with listening(store, key, instance) as listen:
        while (seen := look(store, key, instance)).state == "running" and seen.fence == job.fence:
            left = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
            if left <= 0:
                raise WaitTimeout(job.id, "running")
            listen(left)
    if seen.fence != job.fence or seen.state != "complete":
        reason = seen.value if seen.fence == job.fence and seen.state == "failed" else "abandoned"
        return replace(job, state="failed", error={"type": "Grab", "message": str(reason)})
    return replace(job, state="succeeded", ended=seen.ended, result=seen.value)


@contextmanager
def listening(store: Store, key: str, instance: str) -> Iterator[Callable[[float], None]]:
    """Give a call that waits for a notice of the instance's end, so many seconds at most; also while Redis is away."""
    with store.listening(store.key("grabbed", lane_of(key, instance))) as notices:

        def listen(seconds: float) -> None:
            since = time.monotonic()
            try:
                notices(seconds)
            except (StoreUnavailable, StoreRefused):
                store.pause(max(0.0, min(0.2, seconds) - (time.monotonic() - since)))

        yield listen
