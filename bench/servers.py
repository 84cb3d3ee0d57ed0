"""The servers of a benchmark: its own Redis and one worker. Both end with it."""

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.harness.redis import RedisServer


@contextmanager
def redis_server(*options: str) -> Iterator[str]:
    """The URL of a fresh redis-server, without a database number. By default it writes nothing to disk."""
    with tempfile.TemporaryDirectory() as directory, RedisServer(Path(directory), *options) as server:
        yield server.url(0).removesuffix("/0")


@contextmanager
def worker(url: str, name: str = "bench", concurrency: int = 2) -> Iterator["subprocess.Popen[bytes]"]:
    """A prefork worker of bench.app."""
    argv = [sys.executable, "-m", "celery", "-A", "bench.app", "worker", "-n", f"{name}@bench", "-c", str(concurrency)]
    argv += ["-l", "ERROR", "--without-mingle", "--without-gossip", "--without-heartbeat"]
    environ = os.environ | {"BENCH_REDIS": url}
    process = subprocess.Popen(argv, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def family(pid: int) -> list[psutil.Process]:
    """A worker and all processes that it started."""
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


@contextmanager
def slowed(pid: int) -> Iterator[None]:
    """Let a worker and all processes that it started run for a fifth of the time."""
    everyone, over = family(pid), threading.Event()

    def each(act: str) -> None:
        for process in everyone:
            with suppress(psutil.NoSuchProcess):
                getattr(process, act)()

    def run() -> None:
        while not over.is_set():
            each("suspend")
            over.wait(0.08)
            each("resume")
            over.wait(0.02)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
