"""How fast is a harvest, beside a bare concurrent httpx loop on the same member node? Does its memory stay level?

The member is the demo's. Each run is a process of its own, so that its peak memory can be measured:
`python -m bench.harvest ours|bare MEMBER.json`.
"""

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx

from bench import amount
from examples.demo.member_server import MemberServer
from tasks.catalog.catalog import Catalog
from tasks.harvest.harvest import harvest_member
from tasks.member_node.client import MemberNode
from tasks.member_node.member import Member
from tasks.member_node.objects import read_listing
from tasks.settings import Settings
from tests.tasks.conftest import OneMember

OBJECTS, ROUNDS = amount((20_000, 3), (4, 1))
FEWER = amount((OBJECTS // 4,), ())
CONNECTIONS = 8


def main(rounds: int = ROUNDS) -> None:
    peaks = {objects: one("ours", objects)[1] for objects in FEWER}
    figures = {name: [one(name, OBJECTS) for _ in range(rounds)] for name in ("ours", "bare")}
    rates = {name: [OBJECTS / seconds for seconds, _ in runs] for name, runs in figures.items()}
    ratio = statistics.median(a / b for a, b in zip(rates["ours"], rates["bare"], strict=True))
    print(f"harvest          {statistics.median(rates['ours']):7.0f} objects/s   x {ratio:.2f} of the bare loop")
    print(f"bare httpx loop  {statistics.median(rates['bare']):7.0f} objects/s")
    peaks[OBJECTS] = statistics.median(peak for _, peak in figures["ours"])
    print("peak memory      " + ", ".join(f"{peak:.0f} MB for {objects} objects" for objects, peak in peaks.items()))


def one(name: str, objects: int) -> tuple[float, float]:
    """Seconds and MB of one run, in a process of its own."""
    with MemberServer() as server, tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        server.fill(objects)
        file.write(server.member.model_dump_json())
        file.flush()
        argv = [sys.executable, "-m", "bench.harvest", name, file.name]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert process.stdout
        with process.stdout as said:
            seconds, peak = said.read().split()
        process.wait()
        return float(seconds), float(peak)


@contextmanager
def member(objects: int, changes: float = 0) -> Iterator[str]:
    argv = [sys.executable, "-m", "examples.demo.member_server", "--objects", str(objects), "--changes", str(changes)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        with process.stdout as said:
            yield said.readline()
    finally:
        process.terminate()
        process.wait()


def run(name: str, described: str) -> None:
    node = Member.model_validate_json(described)
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        found = ours(node, Path(directory)) if name == "ours" else bare(node)
        seconds = time.perf_counter() - began
    if found % (OBJECTS // 4):
        raise SystemExit(f"{name} fetched {found} objects")
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def ours(node: Member, directory: Path) -> int:
    settings = Settings(data_dir=directory, connections=CONNECTIONS)
    catalog = Catalog(settings)
    nodelist = OneMember(node)
    with MemberNode(node, settings) as client:
        outcome = harvest_member(node, client=client, catalog=catalog, nodelist=nodelist, fence=1, settings=settings)
    return outcome.stored


def bare(node: Member) -> int:
    """Fetch all pages of the listing by offset, then all system metadata, with one thread for each connection."""
    base = f"{node.base_url}/v2"
    with (
        httpx.Client(limits=httpx.Limits(max_connections=CONNECTIONS)) as client,
        ThreadPoolExecutor(CONNECTIONS) as pool,
    ):
        pids: list[str] = []
        while True:
            query = {"fromDate": "1900-01-01T00:00:00Z", "start": len(pids), "count": 1000}
            page = read_listing([client.get(f"{base}/object", params=query).content])
            pids += [entry.pid for entry in page.entries]
            if len(pids) >= page.total:
                break
        return sum(pool.map(lambda pid: bool(client.get(f"{base}/meta/{quote(pid, safe='')}").content), pids))


if __name__ == "__main__":
    if sys.argv[1:]:
        run(sys.argv[1], Path(sys.argv[2]).read_text())
    else:
        main()
