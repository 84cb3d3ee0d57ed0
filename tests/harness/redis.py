"""The Redis servers of the tests and the bench: each has a loopback port and a directory of its own."""

import os
import signal
import subprocess
import uuid
from pathlib import Path
from typing import Self

import redis

from coordinator.local.redis import find_server, free_port
from tests.harness.waiting import wait_until


class RedisServer:
    """A redis-server (or valkey-server) that can be killed, paused and started again on the same port."""

    def __init__(self, directory: Path, *options: str, program: str | None = None, **login: str | bool) -> None:
        """`login`: how a client of the tests gets in, as redis-py names it; with `ssl`, the port is one for TLS."""
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._login = login
        ports = ["--port", "0", "--tls-port", str(self.port)] if login.get("ssl") else ["--port", str(self.port)]
        self._argv = [program or find_server(), *ports, "--bind", "127.0.0.1", "--save", ""]
        self._argv += ["--dir", str(directory), "--loglevel", "warning", *options]
        self._log = directory / "log"
        self.environ = dict(os.environ)
        self.process: subprocess.Popen[bytes] | None = None

    def url(self, database: int) -> str:
        return f"redis://127.0.0.1:{self.port}/{database}"

    def client(self, database: int = 0) -> redis.Redis:
        return redis.Redis(port=self.port, db=database, decode_responses=True, **self._login)

    def fresh_prefix(self) -> str:
        return f"t{uuid.uuid4().hex[:10]}"

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._argv, stdout=log, stderr=log, env=self.environ)
        with self.client() as client:
            wait_until(lambda: _answers(client), 10, lambda: f"redis does not answer: {self._log.read_text()}")

    def kill(self) -> None:
        assert self.process
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        assert self.process
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process
        os.kill(self.process.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process and self.process.poll() is None:
            self.resume()
            self.kill()


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
