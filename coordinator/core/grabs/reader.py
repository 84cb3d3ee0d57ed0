"""Reads the instances of grabs from Redis: the winner of each, and how the work ended.

Each instance has a lane of its own. A process that wins holds the lane like a lock; a job that was submitted with the
instance waits and runs in the lane. A record in Redis keeps the winner, and for `keep` seconds how the work ended. An
instance is *abandoned* if its record says that the work is running, but its lane has no holder: the next process that
grabs the instance takes over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from urllib.parse import unquote

from coordinator.core.jobs.instances import GrabRecord, lane_of, names_in, parse_instance
from coordinator.core.jobs.record import Job
from coordinator.core.store.client import Store
from coordinator.core.store.step import many
from coordinator.core.store.steps import grab_look
from coordinator.errors import InvalidJob, StoreRefused, StoreUnavailable, WaitTimeout


def read(store: Store, key: str, instance: str) -> GrabRecord:
    """Read the record of an instance; its state is "" if nothing has grabbed the instance."""
    return parse_instance(key, instance, grab_look(store, lane_of(key, instance)))


def all_of(store: Store, key: str | None, most: int, after: str = "") -> list[GrabRecord]:
    """Read a page of at most `most` instances of `key`, or of all keys for None, sorted by key, the latest instance of
    each key first. `after`: the `cursor` of the last record of the page before, "" for the first page.
    """
    names, records = _names(store, key, most, *map(unquote, after.partition("/")[::2])), list[GrabRecord]()
    while page := list(islice(names, most - len(records))):
        replies = many(store, [grab_look.of(lane_of(*name)) for name in page])
        for name, reply in zip(page, replies, strict=True):
            record = parse_instance(*name, store.checked(reply))
            records += [record] if record.state else []
    return records


def _names(store: Store, key: str | None, size: int, after: str, instance: str) -> Iterator[tuple[str, str]]:
    """Yield key and instance of each record of `key` (None: of all keys) that follows the instance `instance` of the
    key `after`; reads `size` at a time.
    """
    keys = [name.decode() for name in store.read("ZRANGE", store.key("grabs"), 0, -1)] if key is None else [key]
    for name in sorted(name for name in keys if name >= after):
        start = _behind(store, name, instance) if name == after else 0
        while page := store.read("ZRANGE", store.key("grabs", name), start, start + size - 1, "REV"):
            yield from ((name, raw.decode()) for raw in page)
            start += len(page)


def _behind(store: Store, key: str, instance: str) -> int:
    place = store.read("ZREVRANK", store.key("grabs", key), instance)
    if place is None:
        raise InvalidJob(f"after: Redis has no instance {instance!r} of {key!r} any more; start from the first page")
    return int(place) + 1


def end_of_process(store: Store, job: Job, deadline: float) -> Job:
    """Wait until the process that won an instance has ended or is gone. Returns `job`, the record of its lock, with the
    state `succeeded` or `failed`. Raises WaitTimeout at `deadline` (of `time.monotonic()`).
    """
    key, instance = names_in(job.keys[0])
    with listening(store, key, instance) as listen:
        while (seen := read(store, key, instance)).state == "running" and seen.fence == job.fence:
            if (left := min(1.0, deadline - time.monotonic())) <= 0:
                raise WaitTimeout(job.id, "running")
            listen(left)
    if seen.fence != job.fence or seen.state != "complete":
        reason = seen.value if seen.fence == job.fence and seen.state == "failed" else "abandoned"
        return replace(job, state="failed", error={"type": "Grab", "message": str(reason)})
    return replace(job, state="succeeded", ended=seen.ended, result=seen.value)


@contextmanager
def listening(store: Store, key: str, instance: str) -> Iterator[Callable[[float], None]]:
    """Give a `with` block a function that waits for the message about the end of an instance, up to a number of
    seconds, also while Redis is unreachable.
    """
    with store.listening(store.key("grabbed", lane_of(key, instance))) as notices:

        def listen(seconds: float) -> None:
            since = time.monotonic()
            try:
                notices(seconds)
            except (StoreUnavailable, StoreRefused):
                store.pause(max(0.0, min(0.2, seconds) - (time.monotonic() - since)))

        yield listen
