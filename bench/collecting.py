"""What does a call cost that a job collects, beside a submit? And how soon after their last call do all jobs go?

100,000 calls on 1,000 keys, in turns with as many submits of the same task on the same keys, one by one by one client,
and in portions of 500. Nobody works meanwhile; then a node is played that claims all that collected.
"""

import statistics
import time
from collections.abc import Iterator
from typing import Any

from celery import Celery

from bench import amount
from bench.servers import redis_server
from coordinator import Coordinator
from coordinator.core.runner.claim import claim_of
from tests.harness.hand_node import Puppet

CALLS, KEYS, PORTION, ROUNDS = amount((100_000, 1_000, 500, 5), (40, 4, 10, 2))
LIST: dict[str, Any] = {"collect": {"how": "list", "idle": 3600}}
LATEST: dict[str, Any] = {"collect": {"idle": 3600, "max_wait": 7200}}


def main() -> None:
    with redis_server("--appendonly", "yes") as url:
        app: Any = Celery("bench", broker="memory://", set_as_current=False)
        coordinator = Coordinator(app, url=f"{url}/0", prefix="bench")
        task = app.task(name="bench.keep", typing=False)(keep)
        costs = [one_round(coordinator, task, number) for number in range(ROUNDS)]
        for name in costs[0]:
            found = [cost[name] for cost in costs]
            beside = "submit, in bulk" if "bulk" in name else "submit"
            ratios = sorted(cost[name] / cost[beside] for cost in costs)
            print(f"{name:24} {statistics.median(found):6.0f} us   x {statistics.median(ratios):.2f}"
                  f" ({ratios[0]:.2f} to {ratios[-1]:.2f})")  # fmt: skip
        print(claims(coordinator, Puppet(coordinator.store), task.name))
        coordinator.close()


def keep(*calls: object) -> None: ...


def one_round(coordinator: Coordinator, task: Any, number: int) -> dict[str, float]:
    """us for each call, one by one and in portions, by how."""
    found: dict[str, float] = {}
    part = CALLS // ROUNDS // 2
    for name, options in (("submit", {}), ("latest", LATEST), ("list", LIST)):
        began = time.perf_counter()
        for at in range(part):
            coordinator.submit(f"{name}/{at % KEYS}", task.s(at), **options)
        found[name] = (time.perf_counter() - began) / part * 1e6
    for name, options in (("submit", {}), ("latest", LATEST), ("list", LIST)):
        began = time.perf_counter()
        for start in range(0, part, PORTION):
            coordinator.submit_many(
                (f"{name}/{at % KEYS}", task.s(at), options) for at in range(start, min(part, start + PORTION))
            )
        found[f"{name}, in bulk"] = (time.perf_counter() - began) / part * 1e6
    return found


def claims(coordinator: Coordinator, node: Puppet, task: str) -> str:
    """All that collect are due at once: the sweeps that put them in line, and their claims."""
    store = coordinator.store
    due = store._client.zrange(store.key("due"), 0, -1)
    store._client.zadd(store.key("due"), dict.fromkeys(due, 1))
    began = time.perf_counter()
    while store._client.zcount(store.key("due"), 0, 1):
        node.sweep()
    swept = time.perf_counter() - began
    about = {"app": "bench", "capacity": 4, "ordinary": 0, "load": 0}
    node.nodes.register("one", "a", about, ["app bench", "queue celery"], [task])
    lists = list(lists_of(node))
    took = sorted(ms for ms, _ in lists)
    return (
        f"{len(due)} jobs that are due are in line after {swept * 1000:.0f} ms; a claim with a list of"
        f" {statistics.median(size for _, size in lists):.0f} calls takes {statistics.median(took):.2f} ms"
    )


def lists_of(node: Puppet) -> Iterator[tuple[float, int]]:
    """ms of each claim of a list, and its calls."""
    left = int(node.store._client.zcard(node.store.key("due"))) or KEYS
    for number in range(100 * left):
        bell = f"{number}-bench"
        node.store._client.zadd(node.store.key("rung", node.name), {bell: 2**53})
        began = time.perf_counter()
        given = node.store.step("runner_take", node.name, "a", f"r{number}", bell, f"t{number}", 60_000)
        took = (time.perf_counter() - began) * 1000
        if not given:
            return
        claim = claim_of(given, f"t{number}")
        if claim.keys[0].startswith("list/"):
            yield took, len(claim.args[0])  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
