"""Which keys of an installation nobody owns: what the harness looks for after each test."""

from coordinator.core.jobs.record import TERMINAL
from coordinator.core.store.client import Store

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
    "began",
    "shares",
    "usual",
    "weight",
    "quota:",
    "quotas",
    "quota-defaults",
)
_OPEN = (
    "line",
    "lanes",
    "paused",
    "pauses",
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


def _open(store: Store, kind: str, quota: str) -> bool:
    """A quota has only jobs that are still to be done."""
    key, client = store.key(kind, quota), store._client
    members = client.hkeys(key) if kind == "quota-users" else client.zrange(key, 0, -1)
    ids = [member.decode().rpartition("\n")[2] for member in members]
    return all((client.hget(store.key("job", one), "state") or b"succeeded").decode() not in TERMINAL for one in ids)


def _waited_for(store: Store, kind: str, name: str) -> bool:
    """What is written of causes is about jobs that wait; an event is listed once it is set, or if one waits for it."""
    client = store._client
    if kind == "causes":
        return client.hget(store.key("job", name), "state") in (b"blocked", b"held")
    if kind == "events":
        waited = [event for event, till in client.zrange(store.key("events"), 0, -1, withscores=True) if not till]
        return all(client.exists(store.key("dependants", f"\1{event.decode()}")) for event in waited)
    ids = [member.decode() for member in client.zrange(store.key(kind, name), 0, -1)]
    states = [client.hget(store.key("job", one), "state") for one in ids]
    return all(state in (b"blocked", b"held", b"parked") for state in states)


def _escaped(prefix: str) -> str:
    return prefix.replace("[", "\\[")


def _owned(store: Store, name: str) -> bool:
    client = store._client
    kind = name.partition(":")[0]
    if name.startswith((*_LASTING, *_OF_NODES, *_OF_DOCUMENTS, "tick:", "schedule", "entries", "steer")):
        return True
    if kind in ("ticks", "runs"):
        return bool(client.exists(store.key("tick", name.partition(":")[2])))
    if kind == "backfills":
        return all(client.exists(store.key("tick", one.decode())) for one in client.hkeys(store.prefix + name))
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
    if kind in ("causes", "dependants", "held-after", "events"):
        return _waited_for(store, kind, name.partition(":")[2])
    if kind == "calls":
        return bool(client.hexists(store.key("job", name.partition(":")[2]), "equal"))
    if kind in ("quota-users", "quota-kind", "quota-offers"):
        return _open(store, kind, name.partition(":")[2])
    if kind == "quota-queue":
        kinds = client.zrange(store.prefix + name, 0, -1)
        return all(client.exists(store.key("quota-kind", f"{name.partition(':')[2]}\n{one.decode()}")) for one in kinds)
    if kind in ("collected", "batch", "sorter", "sorters"):
        return _collecting(store, kind, name.partition(":")[2])
    return kind in _OPEN
