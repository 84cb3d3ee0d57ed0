"""How much does an idle fleet ask of Redis, each second and for each node? 1 and 50 nodes run in this process."""

import time
from pathlib import Path
from typing import Any

import redis
from celery import Celery

from bench import amount
from bench.servers import redis_server
from coordinator import Coordinator
from coordinator.core.fleet import processes
from coordinator.core.fleet.status_file import anonymous_file
from coordinator.core.supervisor.supervisor import Supervisor, SupervisorConfig
from coordinator.core.supervisor.wakes import WakeReader

FLEETS = amount((1, 50), (1, 2))
SETTLE, SECONDS = amount((2.0, 10.0), (0.5, 0.5))


def main() -> None:
    for size in FLEETS:
        with redis_server() as url:
            nodes = [Node(url, number) for number in range(size)]
            run(nodes, SETTLE)
            before = figures(url)
            seconds = run(nodes, SECONDS)
            asked, busy = (now - then for now, then in zip(figures(url), before, strict=True))
            each = f"{asked / seconds / size:5.1f} requests a second and node"
            print(f"{size:3} nodes: {each}, {busy * 1000 / seconds / size:.2f} ms of Redis's processor")


class Node:
    """One node's supervisor, with the thread that waits for wake-ups."""

    def __init__(self, url: str, number: int) -> None:
        app = Celery("bench", broker=f"{url}/1", set_as_current=False)
        self.client = Coordinator(app, url=f"{url}/0")
        about: dict[str, Any] = {"app": "bench", "capacity": 4, "ordinary": 0, "load": 0}
        serves, tasks = ["app bench", "queue celery"], ["bench.app.keep"]
        who = (f"node{number}", str(number), processes.identity())
        status_file = ("/nowhere", anonymous_file(Path("/tmp")))
        self.supervisor = Supervisor(
            self.client.store, SupervisorConfig(*who, about, serves, tasks, "", *status_file, 0, {})
        )
        WakeReader(self.supervisor, bytes).start()


def run(nodes: list[Node], seconds: float) -> float:
    """Let each node sweep once in each `sweep`, spread evenly. Returns the real duration."""
    began, sweep = time.monotonic(), nodes[0].client.settings.sweep
    for look in range(round(seconds / sweep)):
        for number, one in enumerate(nodes):
            due = began + (look + number / len(nodes)) * sweep
            time.sleep(max(0.0, due - time.monotonic()))
            one.supervisor.step()
    return max(seconds, time.monotonic() - began)


def figures(url: str) -> tuple[int, float]:
    """The number of requests to Redis, and its processor time in seconds."""
    with redis.Redis.from_url(f"{url}/0") as client:
        info: Any = client.info("all")
    return int(info["total_reads_processed"]), float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


if __name__ == "__main__":
    main()
