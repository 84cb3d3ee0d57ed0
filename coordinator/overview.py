"""What an installation is doing, read at one moment: its jobs, its Redis, its sums. Nothing here writes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from coordinator.jobs import TERMINAL, Job, counts, parse
from coordinator.nodes import Nodes
from coordinator.store import Store

_PAGE = 500
_SUMS = ("created", "retries", "losses", "faults")


@dataclass(frozen=True, slots=True)
class Status:
    """`jobs`: how many are in each state, or ever ended in it. `warnings`: what may lose work, each with its remedy."""

    redis: str
    version: str
    prefix: str
    nodes: int
    capacity: int
    running: int
    jobs: dict[str, int]
    warnings: tuple[str, ...]


def status(store: Store) -> Status:
    living = Nodes(store).living()
    found = {state: number for state, number in counts(store).items() if number and state not in _SUMS}
    info, warnings = store.call(lambda: _server(store))
    version = info.get("valkey_version") or info.get("redis_version", "")
    order = sorted(found, key=lambda state: (state in TERMINAL, state))
    return Status(
        redis=store.where,
        version=version,
        prefix=store.settings.prefix,
        nodes=len(living),
        capacity=sum(node.capacity for node in living),
        running=sum(node.running for node in living),
        jobs={state: found[state] for state in order},
        warnings=(*warnings, *([] if living else ["no node is alive: jobs wait; start a worker"])),
    )


def warnings(store: Store) -> tuple[str, ...]:
    """Why this Redis may lose what it was given; to be said where one starts. Raises StoreUnavailable."""
    return store.call(lambda: _server(store))[1]  # type: ignore[no-any-return]


def jobs(store: Store, *, key: str = "", state: str = "", most: int = 50) -> list[Job]:
    """The newest jobs that stand or stood in lane `key` and are in `state`; the running first, then by submission."""

    def fits(record: dict[bytes, bytes]) -> bool:
        return state in ("", record[b"state"].decode()) and (not key or key in record[b"keys"].decode().split("\n"))

    found = (
        (float(record.get(b"submitted", b"0")), job_id)
        for job_id, record in _records(store, "state", "keys", "submitted")
        if fits(record)
    )
    newest = [job_id for _, job_id in heapq.nlargest(most, found)]
    return sorted(_whole(store, newest), key=lambda job: job.state != "running")


def _whole(store: Store, ids: list[str]) -> Iterator[Job]:
    def ask() -> list[Any]:
        pipeline = store.client.pipeline(transaction=False)
        for job_id in ids:
            pipeline.hgetall(store.key("job", job_id))
        return list(pipeline.execute())

    for job_id, record in zip(ids, store.call(ask), strict=True):
        if record:
            yield parse(job_id, record)


def _records(store: Store, *fields: str) -> Iterator[tuple[str, dict[bytes, bytes]]]:
    """The id of each job that is kept, and those of the fields that it has; `state` is always among them."""
    begin = len(store.key("job", ""))
    names = _names(store)
    while page := list(islice(names, _PAGE)):

        def ask(page: list[str] = page) -> list[Any]:
            pipeline = store.client.pipeline(transaction=False)
            for name in page:
                pipeline.hmget(name, *fields)
            return list(pipeline.execute())

        for name, values in zip(page, store.call(ask), strict=True):
            record = {field.encode(): value for field, value in zip(fields, values, strict=True) if value is not None}
            if b"state" in record:  # else an alias, or it is gone since
                yield name[begin:], record


def _names(store: Store) -> Iterator[str]:
    """A scan may say a name twice."""
    pattern = "".join("\\" + c if c in "*?[]\\^" else c for c in store.key("job", "")) + "*"
    seen: set[str] = set()
    cursor = 0
    while True:
        scan: Callable[[], Any] = lambda at=cursor: store.client.scan(at, pattern, 1000)  # type: ignore[misc] # noqa: E731
        cursor, names = store.call(scan)
        fresh = {name.decode() for name in names} - seen
        seen |= fresh
        yield from fresh
        if cursor == 0:
            return


def _server(store: Store) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What the server says of itself; a hosted one may refuse to tell its settings."""
    pipeline = store.client.pipeline(transaction=False)
    pipeline.info()
    pipeline.config_get("save")
    info, saving = pipeline.execute(raise_on_error=False)
    if isinstance(info, Exception):
        raise info
    found = []
    if not info.get("aof_enabled"):
        if isinstance(saving, dict) and not saving.get("save"):
            found.append("Redis keeps nothing on disk: a restart loses all jobs; set appendonly yes")
        else:
            found.append("Redis keeps no append-only file: a crash may lose the last minutes; set appendonly yes")
    policy = info.get("maxmemory_policy", "noeviction")
    if info.get("maxmemory") and policy != "noeviction":
        found.append(f"Redis may evict jobs and locks ({policy}): set maxmemory-policy noeviction")
    return info, tuple(found)
