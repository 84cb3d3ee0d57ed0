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
from itertools import islice
from urllib.parse import unquote

from coordinator.errors import InvalidJob, StoreRefused, StoreUnavailable, WaitTimeout
from coordinator.jobs.instances import GrabRecord, lane_of, names_in, parse_instance
from coordinator.jobs.record import Job
from coordinator.store.client import Store


def look(store: Store, key: str, instance: str) -> GrabRecord:
    """Read an instance."""
    return parse_instance(key, instance, store.step("grab_look", lane_of(key, instance)))


def all_of(store: Store, key: str | None, most: int, after: str = "") -> list[GrabRecord]:
    """Read a page of the instances of a key, or of all: by key, and of each key the latest first. See `after` there."""
    names, records = _names(store, key, most, *map(unquote, after.partition("/")[::2])), list[GrabRecord]()
    while portion := list(islice(names, most - len(records))):
        for name, reply in zip(
            portion, store.step_many("grab_look", [(lane_of(*name),) for name in portion]), strict=True
        ):
            record = parse_instance(*name, store.checked(reply))
            records += [record] if record.state else []
    return records


def _names(store: Store, key: str | None, size: int, after: str, instance: str) -> Iterator[tuple[str, str]]:
    """The keys and instances behind the instance `instance` of the key `after`."""
    keys = [name.decode() for name in store.read("ZRANGE", store.key("grabs"), 0, -1)] if key is None else [key]
    for name in sorted(name for name in keys if name >= after):
        start = _behind(store, name, instance) if name == after else 0
        while page := store.read("ZRANGE", store.key("grabs", name), start, start + size - 1, "REV"):
            yield from ((name, raw.decode()) for raw in page)
            start += len(page)


def _behind(store: Store, key: str, instance: str) -> int:
    place = store.read("ZREVRANK", store.key("grabs", key), instance)
    if place is None:
        raise InvalidJob(f"the instance {instance!r} of {key!r}, which after names, is forgotten: begin anew")
    return int(place) + 1


def end_of_process(store: Store, job: Job, deadline: float) -> Job:
    """Wait until a process that won an instance ends, or is gone, and return its job. Raises WaitTimeout."""
    key, instance = names_in(job.keys[0])
    with listening(store, key, instance) as listen:
        while (seen := look(store, key, instance)).state == "running" and seen.fence == job.fence:
            if (left := min(1.0, deadline - time.monotonic())) <= 0:
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
