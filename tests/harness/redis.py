"""The Redis servers of the tests and the bench: each has a loopback port and a directory of its own."""

import os
import uuid
from pathlib import Path
from typing import Any

import redis

from coordinator.local.redis import find_server
from tests.harness.server import Server


class RedisServer(Server):
    """A redis-server (or valkey-server)."""

    def __init__(self, directory: Path, *options: str, program: str | None = None, **login: str | bool) -> None:
        """`login`: how a client of the tests gets in, as redis-py names it; with `ssl`, the port is one for TLS."""
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory / "log")
        self.environ = dict(os.environ)
        self._login = login
        ports = ["--port", "0", "--tls-port", str(self.port)] if login.get("ssl") else ["--port", str(self.port)]
        self._argv = [program or find_server(), *ports, "--bind", "127.0.0.1", "--save", ""]
        self._argv += ["--dir", str(directory), "--loglevel", "warning", *options]

    def argv(self) -> list[str]:
        return self._argv

    def options(self) -> dict[str, Any]:
        return {"env": self.environ}

    def url(self, database: int) -> str:
        return f"redis://127.0.0.1:{self.port}/{database}"

    def client(self, database: int = 0, **options: Any) -> redis.Redis:
        """`options`: further ones of redis-py."""
        return redis.Redis(port=self.port, db=database, decode_responses=True, **self._login, **options)

    def fresh_prefix(self) -> str:
        return f"t{uuid.uuid4().hex[:10]}"

    def answers(self) -> bool:
        with self.client() as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False
