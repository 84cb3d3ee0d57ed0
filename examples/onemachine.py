"""The servers of each example: a private Redis and workers on this machine. They end with the example."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from coordinator import Coordinator
from coordinator.local.leash import leashed
from coordinator.local.redis import EmbeddedRedis

HERE = Path(__file__).parent
_END = "\0"


def say(text: str) -> None:
    """Print a whole line, even where several processes print at the same time."""
    os.write(1, f"{text}\n".encode())


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the condition was not met within {seconds:g} s")
        time.sleep(0.05)


class Machine:
    """Prints the lines of this process and of all workers in their order, and keeps them in `lines`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self._directory = Path(self._stack.enter_context(TemporaryDirectory()))
        redis = self._stack.enter_context(EmbeddedRedis(self._directory / "redis"))
        for name in ("CELERY_BROKER_URL", "CELERY_RESULT_BACKEND", "COORDINATOR_URL"):
            os.environ[name] = redis.url
        read, self._write = os.pipe()
        self._reader = threading.Thread(target=self._show, args=(read,))
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.say(_END)
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            try:
                worker.wait(10)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        os.close(self._write)
        self._reader.join(10)
        self._stack.close()

    def say(self, text: str) -> None:
        os.write(self._write, f"{text}\n".encode())

    def workers(self, app: str, coordinator: Coordinator, *names: str, pool: str = "prefork") -> None:
        """Start a coordinating node of each name, and wait until all have registered and answer."""
        for name in names:
            argv = [sys.executable, "-m", "celery", "-A", app, "-q", "worker", "-n", f"{name}@example"]
            argv += ["-P", pool, "-c", "2", "-l", "ERROR", "--without-mingle", "--without-gossip"]
            with (self._directory / f"{name}.log").open("wb") as log:
                self._workers.append(
                    subprocess.Popen(leashed(argv), cwd=HERE, stdout=self._write, stderr=log, start_new_session=True)
                )
        nodes = [f"{name}@example" for name in names]
        until(lambda: {node.name for node in coordinator.nodes()} >= set(nodes))
        assert coordinator.app
        control = coordinator.app.control
        until(lambda: len(control.ping(destination=nodes, timeout=2.0, limit=len(nodes))) == len(nodes))

    def _show(self, source: int) -> None:
        with os.fdopen(source) as lines:
            for line in lines:
                if line.rstrip() == _END:
                    break
                self.lines.append(line.rstrip())
                print(line, end="", flush=True)
            for _ in lines:  # drop the workers' last words
                pass
