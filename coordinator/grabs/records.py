"""Reads the instances of grabs from Redis: who works on each, or did, and how it ended.

Each instance is a lane of its own. A process that wins holds the lane as a lock in plain code; a job that was submitted
with the instance stands in it. A record in Redis keeps the winner, and the end for as long as `keep` says. An instance
is *abandoned* while its record says that it runs and nobody holds its lane: the next process that grabs it takes over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from coordinator.errors import StoreRefused, StoreUnavailable, WaitTimeout
from coordinator.jobs.instances import GrabRecord, lane_of, names_in, parse_instance
from coordinator.jobs.record import Job
from coordinator.store.client import Store


def look(store: Store, key: str, instance: str) -> GrabRecord:
    """Read an instance."""
    return parse_instance(key, instance, store.step("grab_look", lane_of(key, instance)))


def all_of(store: Store, key: str | None, most: int) -> list[GrabRecord]:
    """Read the instances of a key, or of all keys, the latest first; at most `most` of each key."""
    keys = [name.decode() for name in store.read("ZRANGE", store.key("grabs"), 0, -1)] if key is None else [key]
    instances = [
        (name, instance.decode())
        for name in sorted(keys)
        for instance in store.read("ZRANGE", store.key("grabs", name), 0, most - 1, "REV")
    ]
    replies = store.step_many("grab_look", [(lane_of(*instance),) for instance in instances]) if instances else []
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    records = [parse_instance(*names, reply) for names, reply in zip(instances, replies, strict=True)]
    return [record for record in records if record.state]


def end_of_process(store: Store, job: Job, deadline: float | None) -> Job:
    """Wait until a process that won an instance ends, or is gone, and return its job. Raises WaitTimeout."""
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
    """Give a call that waits at most so many seconds for the notice of an instance's end, also while Redis is away."""
    with store.listening(store.key("grabbed", lane_of(key, instance))) as notices:

        def listen(seconds: float) -> None:
            since = time.monotonic()
            try:
                notices(seconds)
            except (StoreUnavailable, StoreRefused):
                store.pause(max(0.0, min(0.2, seconds) - (time.monotonic() - since)))

        yield listen
