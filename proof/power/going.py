"""The library goes on with what a server has kept: each job ends, fences only grow, and nothing is left over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coordinator import Coordinator
from coordinator.core.author import act_of
from coordinator.core.jobs.record import TERMINAL
from coordinator.core.store.client import Store
from proof.power.load import HOURS
from proof.power.server import PREFIX
from tests.harness.hand_node import Puppet
from tests.harness.leftovers import leftovers

ROUNDS = 60
ACT = act_of("power", "power")


def goes_on(url: str, fence: int) -> str:
    """ "": it does. `fence`: the greatest that was answered before the power went, kept or not."""
    client = Coordinator(url=url, prefix=PREFIX, timeout=60)
    store = client.store
    Puppet(store, "one", HOURS).up(incarnation="b")  # what it had before the power went is lost
    node = Puppet(store, "two", HOURS)
    node.up(capacity=1000)
    for key in ("g/a", "h/c"):
        client.resume(key, why="power")
    client.event("ready").set(1, why="power")
    for _ in range(ROUNDS):
        _lapse(store)
        node.store.step("sweep", 0, 10**13, "")
        for taken in node.take_all():
            if taken.fence <= fence:
                return f"fence {taken.fence} of {taken.id} is not above {fence}"
            node.finish(taken)
        if not (left := dict(_open(store))):
            break
    _lapse(store)
    node.store.step("sweep", 0, 10**13, "")
    wrong = sorted(left) + leftovers(store)
    client.close()
    return f"left: {wrong[:5]}" if wrong else ""


def _lapse(store: Store) -> None:
    """Whoever held a lease is gone, and whatever waits for its time may come."""
    client: Any = store._client
    for name in ("leases", "locks", "due", "starts"):
        for job_id in client.zrange(store.key(name), 0, -1):
            client.zadd(store.key(name), {job_id: 1}, xx=True)
    for name in client.scan_iter(store.key("lock", "*"), 1000):
        client.delete(name)
    for job_id, state in _open(store):
        if state == "held":
            store.step("job_retry", job_id, ACT, "back")


def _open(store: Store) -> Iterator[tuple[str, str]]:
    client: Any = store._client
    for name in list(client.scan_iter(store.key("job", "*"), 1000)):
        state = (client.hget(name, "state") or b"").decode()
        if state and state not in TERMINAL:
            yield name.decode().partition("job:")[2], state
