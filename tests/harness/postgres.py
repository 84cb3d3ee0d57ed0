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
from typing import Any

import psycopg

from tests.harness.server import NoServer, Server, program

USER = "tests"
SMALL = {"shared_buffers": "16MB", "max_connections": "60", "autovacuum": "off", "fsync": "off"}


class PostgresServer(Server):
    """`settings`: of postgresql.conf. While it is paused, open connections go on."""

    killed_by = signal.SIGQUIT  # it takes its children along, which SIGKILL would leave; the next start repairs all

    def __init__(self, **settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="postgres-"))  # pytest's own folders are closed to other users
        super().__init__(self.folder / "log")
        self._settings = settings or SMALL
        self._owner = _other_user()
        self._free: list[str] = []  # databases
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

    def prepare(self) -> None:
        argv = [_program("initdb"), "-D", str(self.folder / "data"), "-U", USER, "--auth=trust", "--encoding=UTF8"]
        argv += ["--locale=C", "--no-sync", "--no-instructions"]
        done = subprocess.run(argv, **self.options(), capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise NoServer(f"initdb: {done.stderr.strip()[-500:]}")

    def argv(self) -> list[str]:
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        where = ["-D", str(self.folder / "data"), "-p", str(self.port)]
        return [_program("postgres"), *where, *settings, "--listen_addresses=127.0.0.1", "--unix_socket_directories="]

    def answers(self) -> bool:
        with suppress(psycopg.OperationalError):
            self.connect().close()
            return True
        return False

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        shutil.rmtree(self.folder, ignore_errors=True)

    def options(self) -> dict[str, Any]:
        user = self._owner
        who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
        return {"cwd": self.folder, **who}


def _program(name: str) -> str:
    return program(name, "/usr/lib/postgresql/*/bin")


def _other_user() -> pwd.struct_passwd | None:
    if os.geteuid():
        return None
    users = {user.pw_name: user for user in pwd.getpwall()}
    return users.get("postgres") or users["nobody"]
