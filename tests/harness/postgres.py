"""The PostgreSQL of the tests and the bench: a loopback port and a folder of its own, both gone at the end.

The server refuses to be root's. Where we are root, it is the user `postgres`'s, or `nobody`'s.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import psycopg

from coordinator.local.redis import free_port
from tests.harness.waiting import wait_until

USER = "tests"
SMALL = {"shared_buffers": "16MB", "max_connections": "60", "autovacuum": "off", "fsync": "off"}


class NoPostgres(Exception):
    """There is no PostgreSQL here, or it does not start; the text says why."""


class PostgresServer:
    """Can be killed, paused and started again on the same port. `settings`: of postgresql.conf."""

    def __init__(self, **settings: str) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="postgres-"))  # pytest's own folders are closed to other users
        self._settings = settings or SMALL
        self._log = self.folder / "log"
        self._owner = _other_user()
        self._free: list[str] = []  # databases
        self.process: subprocess.Popen[bytes] | None = None
        if self._owner:
            os.chown(self.folder, self._owner.pw_uid, self._owner.pw_gid)

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://{USER}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = "postgres", **given: Any) -> "psycopg.Connection[Any]":
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=USER, dbname=database, autocommit=True, connect_timeout=5, **given
        )

    @contextmanager
    def database(self) -> Iterator[str]:
        """The name of an empty database that nobody else has within `with`.

        Making one costs more than most tests do in it, so one that was given back is emptied and lent again.
        """
        if self._free:
            name = self._free.pop()
        else:
            name = f"t{uuid.uuid4().hex[:10]}"
            with self.connect() as connection:
                connection.execute(f'CREATE DATABASE "{name}"')
        try:
            yield name
        finally:
            with self.connect() as connection:
                connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
            with self.connect(name) as connection:
                connection.execute("DROP SCHEMA public CASCADE")
                connection.execute("CREATE SCHEMA public")
            self._free.append(name)

    def start(self) -> None:
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        options += ["--listen_addresses=127.0.0.1", "--unix_socket_directories="]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [found("postgres"), "-D", str(self.folder / "data"), "-p", str(self.port), *options],
                **self._run_as(),
                stdout=log,
                stderr=log,
            )
        wait_until(self._answers, 20, self._log.read_text)

    def _answers(self) -> bool:
        assert self.process
        if self.process.poll() is not None:
            raise NoPostgres(f"PostgreSQL does not start: {self._log.read_text().strip()[-500:]}")
        with suppress(psycopg.OperationalError):
            self.connect().close()
            return True
        return False

    def kill(self) -> None:
        """As a power cut would: its processes end at once, and the next start repairs what they left."""
        assert self.process
        self.process.send_signal(signal.SIGQUIT)  # it takes its children along, which SIGKILL would leave
        self.process.wait(20)

    def pause(self) -> None:
        """New connections are not answered; those that are open go on."""
        assert self.process
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process
        os.kill(self.process.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        argv = [found("initdb"), "-D", str(self.folder / "data"), "-U", USER, "--auth=trust", "--encoding=UTF8"]
        argv += ["--locale=C", "--no-sync", "--no-instructions"]
        try:
            done = subprocess.run(argv, **self._run_as(), capture_output=True, text=True, timeout=60)
            if done.returncode:
                raise NoPostgres(f"initdb: {done.stderr.strip()[-500:]}")
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.process and self.process.poll() is None:
            self.resume()
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run_as(self) -> dict[str, Any]:
        user = self._owner
        who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
        return {"cwd": self.folder, **who}


def found(program: str) -> str:
    """The newest of the programs of this name below Debian's folder, else the one on the PATH. Raises NoPostgres."""
    folders = Path("/usr/lib/postgresql").glob("*/bin")
    newest_first = sorted(folders, key=lambda path: float(path.parent.name), reverse=True)
    path = next((str(one / program) for one in newest_first if (one / program).exists()), shutil.which(program))
    if path is None:
        raise NoPostgres(f"no PostgreSQL: {program} is neither below /usr/lib/postgresql nor on the PATH (make system)")
    return path


def _other_user() -> pwd.struct_passwd | None:
    if os.geteuid():
        return None
    users = {user.pw_name: user for user in pwd.getpwall()}
    return users.get("postgres") or users["nobody"]
