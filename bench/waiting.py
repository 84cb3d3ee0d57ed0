"""What does a job cost that waits for an event, beside one that waits in line? And how soon do 10,000 go on?

As many jobs wait for one event as stand in lanes that are paused; nobody works meanwhile. Then the event is set, and
sweeps tell those that the set itself did not.
"""

import time
from typing import Any

from celery import Celery

from bench import amount
from bench.servers import redis_server
from coordinator import Coordinator
from tests.harness.hand_node import Puppet

JOBS, PORTION = amount((10_000, 500), (40, 10))


def main() -> None:
    with redis_server("--appendonly", "yes") as url:
        app: Any = Celery("bench", broker="memory://", set_as_current=False)
        coordinator = Coordinator(app, url=f"{url}/0", prefix="bench")
        task = app.task(name="bench.keep", typing=False)(keep)
        event = coordinator.event("approved")
        for number in range(JOBS):
            coordinator.pause(f"in line/{number}", why="nobody works meanwhile")
        line, line_bytes = filled(coordinator, task, "in line", {})
        wait, wait_bytes = filled(coordinator, task, "event", {"after": event})
        print(f"a submit: {line:.0f} us in line, {wait:.0f} us for an event, x {wait / line:.2f}")
        ratio = wait_bytes / line_bytes
        print(f"bytes of Redis: {line_bytes:.0f} in line, {wait_bytes:.0f} for an event, x {ratio:.2f}")
        node = Puppet(coordinator.store)
        began = time.perf_counter()
        event.set(True)
        took, count = time.perf_counter() - began, coordinator.counts()["blocked"]
        rounds = 0
        while coordinator.counts()["blocked"]:
            node.sweep()
            rounds += 1
        all_ = time.perf_counter() - began
        print(
            f"set: {took * 1000:.1f} ms, in which {JOBS - count} go on; all {JOBS} after {rounds} steps of sweeps,"
            f" {all_:.2f} s, {all_ / JOBS * 1e6:.0f} us each, x {all_ / JOBS * 1e6 / line:.2f} of a submit"
        )
        coordinator.close()


def keep(*calls: object) -> None: ...


def filled(coordinator: Coordinator, task: Any, name: str, options: Any) -> tuple[float, float]:
    """us of each submit, in portions; and bytes of Redis for each job."""
    client: Any = coordinator.store._client
    before, began = client.info("memory")["used_memory"], time.perf_counter()
    for start in range(0, JOBS, PORTION):
        coordinator.submit_many((f"{name}/{at}", task.s(at), options) for at in range(start, start + PORTION))
    took = (time.perf_counter() - began) / JOBS * 1e6
    return took, (client.info("memory")["used_memory"] - before) / JOBS


if __name__ == "__main__":
    main()
