"""A PostgreSQL of the benchmark's own: a free port of the loopback, a folder that goes with it."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coordinator.local.redis import free_port

# As often on disk as an append-only file that is flushed each second.
OPTIONS = ("-c", "synchronous_commit=off", "-c", "listen_addresses=127.0.0.1")


class NoPostgres(Exception):
    """Raised when there is no PostgreSQL here, or when it does not start; the text says why."""


@contextmanager
def postgres_server() -> Iterator[str]:
    """The address of a fresh server, with an empty database `peers`."""
    initdb, pg_ctl = found("initdb"), found("pg_ctl")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        shared(Path(folder))
        data, port = f"{folder}/data", free_port()
        run(initdb, "-D", data, "-U", "peers", "-A", "trust", "-E", "UTF8", "--locale=C", folder=folder)
        options = " ".join((f"-p {port} -k {folder}", *OPTIONS))
        run(pg_ctl, "-D", data, "-l", f"{folder}/log", "-w", "-o", options, "start", folder=folder)
        try:
            run(found("createdb"), "-h", "127.0.0.1", "-p", str(port), "-U", "peers", "peers", folder=folder)
            yield f"host=127.0.0.1 port={port} user=peers dbname=peers"
        finally:
            run(pg_ctl, "-D", data, "-m", "immediate", "-w", "stop", folder=folder)


def found(program: str) -> str:
    """The newest of the programs of this name below Debian's folder, else the one on the PATH."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    path = next((str(folder / program) for folder in folders if (folder / program).exists()), shutil.which(program))
    if path is None:
        raise NoPostgres("no PostgreSQL")
    return path


def run(*argv: str, folder: str) -> None:
    """Run it in that folder, and as another user where we are root: the server refuses to be root's."""
    owner = other_user()
    who = {} if owner is None else {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
    with open(f"{folder}/output", "w+") as output:
        done = subprocess.run(argv, cwd=folder, stdout=output, stderr=subprocess.STDOUT, **who)
        output.seek(0)
        if done.returncode:
            raise NoPostgres(f"PostgreSQL: {Path(argv[0]).name} failed: {output.read().strip().splitlines()[-1:]}")


def shared(folder: Path) -> None:
    if owner := other_user():
        os.chown(folder, owner.pw_uid, owner.pw_gid)


def other_user() -> pwd.struct_passwd | None:
    if os.geteuid():
        return None
    users = {user.pw_name: user for user in pwd.getpwall()}
    return users.get("postgres") or users["nobody"]
