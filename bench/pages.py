"""How long does each page of the dashboard take beside a million kept jobs, 100,000 lanes and 10,000 members?

And what do ten viewers cost Redis, five on the same page and five each on one of their own? The pages are read in this
process; viewers come to a server in a thread of it.
"""

import logging
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from bench import amount
from bench.history import keep
from bench.servers import redis_server
from bench.size import fill, register
from coordinator.core.author import Author
from coordinator.extending import dashboard
from tests.coordinator.ops.dashboard.stage import TestClient, served

LANES, MEMBERS, TIMES, SECONDS = amount((100_000, 10_000, 20, 20.0), (4, 2, 1, 0.5))
PAGES = {
    "overview": "/", "lanes": "/lanes", "lanes, the oldest wait first": "/lanes?sort=wait",
    "tenants": "/tenants", "tenants, all below one beginning": "/tenants?prefix=lane/",
    "a lane": "/lane?key=lane/1", "jobs": "/jobs", "failed jobs of an hour": "/jobs?state=failed&since=1h",
    "a task of no job": "/jobs?task=none",
    "a job": "/job?id=copy 1", "nodes": "/nodes", "a node": "/node?name=bench", "schedule": "/schedule",
    "actions": "/actions", "the form of an act on all lanes' jobs": "/act/cancel-all?state=ready",
    "the form of an act that finds none": "/act/cancel-all?state=waiting",
    "the form of an act on all lanes": "/act/pause-all?key=lane/*",
}  # fmt: skip
OWN = ["/lanes", "/lane?key=lane/1", "/jobs", "/nodes", "/actions"]


def main() -> None:
    logging.disable(logging.WARNING)
    with redis_server() as url, tempfile.TemporaryDirectory() as folder:
        os.environ |= {"BENCH_REDIS": url, "COORDINATOR_URL": f"{url}/0", "TASKS_DATA_DIR": folder}
        from bench import app as bench  # the module reads the address of this run's Redis

        register(bench)
        keep(bench)
        store = bench.coordinator.store
        store._client.hset(store.key("node", "bench"), "capacity", 1)  # pages count slots in whole numbers
        fill(bench, LANES)
        read(bench.coordinator, PAGES)
        viewers(bench.coordinator)
        of_members(Path(folder))


def read(coordinator: Any, pages: Mapping[str, str]) -> None:
    with TestClient(dashboard(coordinator, auth=lambda _: Author("bench"))) as client:
        for name, path in pages.items():
            took = [timed(client, path) for _ in range(TIMES)]
            late = sorted(took)[int(0.95 * (len(took) - 1))]
            print(f"{name:36} p50 {statistics.median(took):6.0f} ms   p95 {late:6.0f} ms", flush=True)


def timed(client: TestClient, path: str) -> float:
    began = time.perf_counter()
    answer = client.get(path)
    if answer.status_code != 200:
        raise SystemExit(f"{path}: {answer.status_code} {answer.text[-400:]}")
    return (time.perf_counter() - began) * 1000


def viewers(coordinator: Any) -> None:
    client = coordinator.store._client
    for paths in ([], [*["/"] * 5, *OWN]):
        with served(dashboard(coordinator, auth=lambda _: Author("bench"))) as site:
            before = client.info()
            watch(site, paths)
            after = client.info()
        asked = (after["total_commands_processed"] - before["total_commands_processed"]) / SECONDS
        busy = sum(after[name] - before[name] for name in ("used_cpu_user", "used_cpu_sys")) / SECONDS
        print(f"{len(paths):2} viewers: {asked:6.0f} commands a second, {100 * busy:5.2f} % of Redis' core", flush=True)


def watch(site: str, paths: Sequence[str]) -> None:
    """Open the streams of these pages for some seconds."""
    over = threading.Event()

    def look(path: str) -> None:
        with httpx.stream("GET", f"{site}/live", params={"at": path}, timeout=30) as events:
            for _ in events.iter_lines():
                if over.is_set():
                    return

    with ThreadPoolExecutor(max(1, len(paths))) as pool:
        looks = [pool.submit(look, path) for path in paths]
        time.sleep(SECONDS)
        over.set()
        for one in looks:
            one.result()


def of_members(data: Path) -> None:
    """The pages of the service, with a list of many members that this process alone keeps."""
    from bench.harvest import member
    from bench.members import federation
    from tasks.app import NODELIST, coordinator
    from tasks.cli import main  # noqa: F401  # adds the pages
    from tasks.documents.replica import Replica
    from tasks.member_node.member import Member
    from tasks.nodelist.xml_format import write_nodelist
    from tasks.service import service

    with member(1, 0.0) as described:
        listed = federation(Member.model_validate_json(described), MEMBERS)
    (data / "nodelist.xml").write_bytes(write_nodelist(listed))
    replica = Replica(coordinator.store, NODELIST, "bench", data / "copies")
    replica.start()
    service().nodelist.refresh()
    some = listed[-1].identifier
    read(
        coordinator,
        {"members": "/members", "members of a name": f"/members?text={some}", "a member": f"/member?id={some}"},
    )
    replica.stop()


if __name__ == "__main__":
    main()
