"""How fast is a harvest of a member that comes and goes, beside a bare loop that retries each error?

The member is up for 10 s and closes every connection for 3 s, again and again. It delivers 80 objects a second. The
service is a node of its own, and somebody asks for the member whenever no sync of it runs or waits.
"""

import json
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import httpx

from bench import amount
from examples.demo.member_server import MemberServer, Request
from tests.fleet.tasks.service import Service
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

UP, DOWN, RATE = *amount((10.0, 3.0), (0.5, 0.1)), 80
SECONDS = 3 * (UP + DOWN)
OBJECTS = amount(8_000, 20)


def main() -> None:
    with MemberServer() as server:
        server.fill(OBJECTS)
        bare = loop(server)
        ours, failed, jobs = service(server)
    up = SECONDS * UP / (UP + DOWN)
    print(f"service    {ours / up:5.1f} objects/s while it is up   x {ours / bare:.2f} of the bare loop")
    print(f"bare loop  {bare / up:5.1f} objects/s while it is up")
    print(f"{jobs} jobs of the service, and {failed} of {ours + failed} objects noted as failed")


def flap(server: MemberServer) -> None:
    """Let the member come and go from now on, first up."""
    begun, turn, free_at = time.monotonic(), threading.Lock(), [0.0]

    def hook(request: Request) -> None:
        if (time.monotonic() - begun) % (UP + DOWN) > UP:
            raise ConnectionAbortedError
        if request.path[0] == "meta":
            with turn:
                free_at[0] = max(free_at[0], time.monotonic()) + 1 / RATE
                pause = free_at[0] - time.monotonic()
            time.sleep(max(0.0, pause))

    server.hook = hook


def loop(server: MemberServer) -> int:
    """The number of objects that eight threads fetch; each retries an object until it has it."""
    flap(server)
    over, fetched, base = time.monotonic() + SECONDS, [0], f"{server.member.base_url}/v2/meta"

    def fetch(pid: str) -> None:
        while time.monotonic() < over:
            try:
                client.get(f"{base}/{quote(pid, safe='')}").raise_for_status()
            except httpx.HTTPError:
                time.sleep(0.05)
            else:
                fetched[0] += 1
                return

    with httpx.Client(limits=httpx.Limits(max_connections=8)) as client, ThreadPoolExecutor(8) as pool:
        list(pool.map(fetch, sorted(server.pids)))
    return fetched[0]


def service(server: MemberServer) -> tuple[int, int, int]:
    """Objects stored and failed, and the number of jobs."""
    with (
        tempfile.TemporaryDirectory() as folder,
        RedisServer(Path(folder) / "redis") as redis,
        Service(redis, Path(folder), [server], TASKS_TRY_PAUSE="0.5") as here,
    ):
        here.node("one")
        flap(server)
        over, jobs = time.monotonic() + SECONDS, 0
        while (left := over - time.monotonic()) > 0:
            jobs += 1
            here.ask(json.dumps({"node": server.member.identifier, "id": str(jobs)}))
            wait_until(lambda: here.known(str(jobs)), 10)  # noqa: B023
            ended(here, str(jobs), left)
        summary = here.catalog.summary(server.member.identifier)
    return summary.objects, summary.failed, jobs


def ended(here: Service, job_id: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not here.coordinator.job(job_id).over and time.monotonic() < deadline:
        time.sleep(0.1)


if __name__ == "__main__":
    main()
