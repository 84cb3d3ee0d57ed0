"""The servers of a benchmark: its own Redis and one worker. Both end with it."""

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import psutil

from bench import amount
from coordinator import StoreUnavailable
from coordinator.local.redis import free_port
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until


@contextmanager
def redis_server(*options: str) -> Iterator[str]:
    """The URL of a fresh redis-server, without a database number. By default it writes nothing to disk."""
    with tempfile.TemporaryDirectory() as directory, RedisServer(Path(directory), *options) as server:
        try:
            yield server.url(0).removesuffix("/0")
        except StoreUnavailable as error:
            assert server.process
            error.add_note(f"its redis-server: exit status {server.process.poll()}, log: {server.log.read_text()}")
            raise


@contextmanager
def worker(
    url: str, name: str = "bench", concurrency: int = amount(2, 1), flags: Sequence[str] = ()
) -> Iterator["subprocess.Popen[bytes]"]:
    """A worker of bench.app, as users start one."""
    with celery(url, "bench.app", "worker", "-n", f"{name}@bench", "-c", str(concurrency), *flags) as process:
        yield process


@contextmanager
def flower(url: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Flower, once it answers, since then it receives the events."""
    port = free_port()
    with celery(url, "bench.app", "flower", "--address=127.0.0.1", f"--port={port}") as process:
        wait_until(lambda: _answers(port), 30, "Flower does not answer")
        yield process


def _answers(port: int) -> bool:
    with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/healthcheck", timeout=1) as answer:
        return bool(answer.status == 200)
    return False


@contextmanager
def celery(url: str, app: str, command: str, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
    argv = [sys.executable, "-m", "celery", "-A", app, command, *options]
    environ = os.environ | {"BENCH_REDIS": url}
    process = subprocess.Popen(argv, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def family(pid: int) -> list[psutil.Process]:
    """A worker and its children."""
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


@contextmanager
def slowed(pid: int) -> Iterator[None]:
    """Let a worker and its children run for a fifth of the time."""
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
