"""Which keys of an installation nobody owns: what the harness looks for after each test."""

from coordinator.jobs.record import TERMINAL
from coordinator.store.client import Store

# Of the installation, and of its living nodes.
_LASTING = (
    "fence",
    "sequence",
    "fronts",
    "bells",
    "classes",
    "fits:",
    "swept",
    "lost-nodes",
    "clock",
    "silence",
    "format",
    "alive",
    "room",
    "counts",
    "ended",
    "lane-runs",
    "samples",
    "waits",
    "tallies",
    "measures",
    "declared",
    "inboxes:",
    "seen:",
    "actions",
    "whereabouts",
)
_OPEN = (
    "line",
    "lanes",
    "limits",
    "paused",
    "drained",
    "ready",
    "ready-by-task",
    "contended",
    "group",
    "leases",
    "locks",
    "due",
    "starts",
    "expiry",
    "latest",
    "unsent",
    "troubles",
    "parked",
    "walks",
    "state",
    "coalesced",
)
_OF_DOCUMENTS = (
    "asked:",
    "prepare:",
    "acked:",
    "pointer:",
    "document:",
    "replicas:",
    "history:",
    "behind:",
    "stored:",
    "server:",
)
_OF_NODES = ("node:", "serves:", "tasks:", "classes:", "work:", "rung:", "times:", "wakes:")


def leftovers(store: Store) -> list[str]:
    """Keys without a ttl that belong to no job that is still to be done, no line, no schedule."""
    client = store._client
    names = [name.decode() for name in client.scan_iter(_escaped(store.prefix) + "*", 1000)]
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.ttl(name)
        lasting = [name for name, ttl in zip(names, pipe.execute(), strict=True) if ttl == -1]
    return sorted(name for name in lasting if not _owned(store, name[len(store.prefix) :]))


def _collecting(store: Store, kind: str, sorter: str) -> bool:
    """What a sorter has is about orders that it holds."""
    if kind == "sorters":
        names = [name.decode() for name in store._client.zrange(store.key("sorters"), 0, -1)]
        return all(store._client.exists(store.key("collected", name), store.key("batch", name)) for name in names)
    if kind == "sorter":
        return bool(store._client.exists(store.key("collected", sorter)))
    ids = [member.partition(b"\0")[2].decode() for member in store._client.zrange(store.key(kind, sorter), 0, -1)]
    return all(store._client.hget(store.key("job", job_id), "state") == b"collected" for job_id in ids)


def _escaped(prefix: str) -> str:
    return prefix.replace("[", "\\[")


def _owned(store: Store, name: str) -> bool:
    client = store._client
    kind = name.partition(":")[0]
    if name.startswith((*_LASTING, *_OF_NODES, *_OF_DOCUMENTS, "tick:", "schedule", "entries", "steer")):
        return True
    if kind in ("ticks", "runs"):
        return bool(client.exists(store.key("tick", name.partition(":")[2])))
    if kind == "job":
        state, alias = client.hmget(store.prefix + name, "state", "alias")
        return bool(alias) or (state or b"").decode() not in TERMINAL
    if kind == "aliases":
        job_id = name.partition(":")[2]
        state = client.hget(store.key("job", job_id), "state") or b""
        return (bool(state) and state.decode() not in TERMINAL) or client.zscore(
            store.key("coalesced"), job_id
        ) is not None
    if kind == "equal":
        return bool(client.exists(store.key("job", (client.get(store.prefix + name) or b"").decode())))
    if kind in ("collected", "batch", "sorter", "sorters"):
        return _collecting(store, kind, name.partition(":")[2])
    return kind in _OPEN
