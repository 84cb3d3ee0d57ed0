"""What does an update cost that five nodes write to their disks before it is committed? And a read of the newest one?

There are five processes and one Redis, whose append-only file is flushed each second. The peers are a bare SET, a bare
write that is flushed to the disk, and a bare GET.
"""

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import amount
from bench.servers import redis_server
from coordinator.core.settings import Settings
from coordinator.core.store.client import Store
from tasks.documents.document import Document
from tasks.documents.on_disk import Copies
from tasks.documents.replica import Replica

NODES, WRITERS = amount((5, 20), (1, 2))
NAME = "bench"


def member(url: str, name: str, root: str) -> None:
    Replica(Store(Settings(url=url)), NAME, name, Path(root)).run()


@contextmanager
def members(url: str, root: Path) -> Iterator[Document]:
    """The document, once all nodes are in its replica set and it accepts changes."""
    argv = [[sys.executable, "-m", "bench.replicas", url, f"n{number}", str(root)] for number in range(NODES)]
    processes = [subprocess.Popen(one) for one in argv]
    try:
        document = Document(Store(Settings(url=url, timeout=10)), NAME)
        while len(document.members()) < NODES:
            time.sleep(0.05)
        entries = {f"entry/{number}": {"state": "up", "number": number} for number in range(100)}
        document.update(entries, fence=document.fence(), timeout=30)
        yield document
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> None:
    with tempfile.TemporaryDirectory() as root, redis_server("--appendonly", "yes") as server:
        url = f"{server}/0"
        with members(url, Path(root)) as document:
            counter = itertools.count()

            def update() -> None:
                number = next(counter)
                document.update({f"entry/{number % 100}": {"number": number}}, fence=document.fence())

            report("an update, one writer", timed(update, 300))
            together(update)
            reads(document, Path(root))
            client = document.store._client
            report("bare SET", timed(lambda: client.set("bare", "x" * 60), 3_000))
            report("bare write and fsync", timed(lambda: flushed(Path(root) / "bare"), 300))


def together(update: Callable[[], None], seconds: float = amount(10.0, 0.2)) -> None:
    """Twenty writers update at the same time, each one update after the other."""
    times: list[float] = []
    end = time.perf_counter() + seconds

    def write() -> None:
        while time.perf_counter() < end:
            times.extend(timed(update, 1))

    threads = [threading.Thread(target=write) for _ in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report(f"an update, {WRITERS} writers", times)
    print(f"{'':24} {len(times) / seconds:8.0f} updates/s")


def reads(document: Document, root: Path) -> None:
    client, key = document.store._client, document.store.key("pointer", NAME)
    here = Document(document.store, NAME, Copies(root / "n0", NAME))
    pairs = [(timed(lambda: client.get(key), 1_000), timed(here.read, 1_000)) for _ in range(5)]
    report("bare GET", [one for times, _ in pairs for one in times])
    report("a read", [one for _, times in pairs for one in times])
    ratios = [statistics.median(read) / statistics.median(get) for get, read in pairs]
    print(f"{'':24} x {statistics.median(ratios):.2f} of a GET")


def flushed(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"x" * 5_000)
        file.flush()
        os.fsync(file.fileno())


def timed(act: Callable[[], object], times: int) -> list[float]:
    times = []
    for _ in range(amount(times, 2)):
        began = time.perf_counter()
        act()
        times.append(time.perf_counter() - began)
    return times


def report(name: str, times: list[float]) -> None:
    cuts = statistics.quantiles(times, n=100)
    print(f"{name:24} p50 {cuts[49] * 1000:8.2f} ms   p99 {cuts[98] * 1000:8.2f} ms", flush=True)


if __name__ == "__main__":
    member(*sys.argv[1:]) if sys.argv[1:] else main()
