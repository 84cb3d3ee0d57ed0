"""A server with an append-only file, on a folder that may be harmed."""

from __future__ import annotations

import re
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis

from coordinator.core.settings import Settings
from coordinator.core.store.client import Store
from tests.harness.redis import RedisServer
from tests.harness.server import NoServer
from tests.harness.waiting import wait_until

PREFIX = "power"
PATIENCE = 60.0  # seconds for a start on a busy machine
_STAMP = re.compile(r"^\d+:\w .*?\d\d:\d\d:\d\d\.\d+ \S ", re.M)
_MEMORY = re.compile(r".*vm\.overcommit_memory.*\n?")


class Server(RedisServer):
    """Thousands are started: at a socket, which no other can take meanwhile, and asked more often whether it is up."""

    def __init__(self, data: Path, program: str, fsync: str = "no") -> None:
        """`fsync`: `always`, or `no`, where nothing but the server is killed."""
        super().__init__(data, program=program)
        self._socket = str(data / "socket")
        self._argv = [program, "--port", "0", "--unixsocket", self._socket, "--dir", str(data)]
        self._argv += ["--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0"]
        self._argv += ["--save", "", "--loglevel", "warning"]

    def starts(self) -> bool:
        self.process = self.run(*self.argv())
        deadline = time.monotonic() + PATIENCE
        try:
            while not self._is_up():
                assert time.monotonic() < deadline, f"it does not answer: {self.said()}"
                time.sleep(0.003)
        except NoServer:
            return False
        return True

    def answers(self) -> bool:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(self._socket)
            connection.sendall(b"PING\r\n")
            return connection.recv(100).startswith(b"+PONG")
        return False

    def url(self, database: int) -> str:
        return f"unix://{self._socket}?db={database}"

    def client(self, database: int = 0, **options: Any) -> redis.Redis:
        return redis.Redis(unix_socket_path=self._socket, db=database, decode_responses=True, **options)

    def raw(self) -> redis.Redis:
        """One that decodes nothing."""
        return redis.Redis(unix_socket_path=self._socket)

    def store(self) -> Store:
        return Store(Settings.model_validate({"url": self.url(0), "prefix": PREFIX, "timeout": 60}))

    def said(self) -> str:
        """Its log without numbers of processes, times, and what it says of the machine's memory."""
        return _MEMORY.sub("", _STAMP.sub("", self.log.read_text(errors="replace"))).strip()


def rewrite(client: redis.Redis) -> None:
    client.bgrewriteaof()
    wait_until(lambda: not rewriting(client))


def rewriting(client: redis.Redis) -> bool:
    about = client.info("persistence")
    return bool(about["aof_rewrite_in_progress"] or about["aof_rewrite_scheduled"])
