"""What a benchmark runs on: one Redis of its own, one worker; both end with it."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import redis


@contextmanager
def redis_server(*options: str) -> Iterator[str]:
    """The URL of a fresh redis-server, without a database number; by default nothing goes to disk."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise SystemExit("the benchmarks need redis-server: make system")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as directory:
        argv = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", directory, "--save", "", *options]
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        try:
            await_redis(port)
            yield f"redis://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def await_redis(port: int) -> None:
    client = redis.Redis(port=port)
    for _ in range(200):
        try:
            client.ping()
            return
        except redis.ConnectionError:
            time.sleep(0.05)
    raise SystemExit("redis-server did not start")


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
    """A worker and all that it started."""
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


@contextmanager
def slowed(pid: int) -> Iterator[None]:
    """A worker and all that it started run for a fifth of the time."""
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
