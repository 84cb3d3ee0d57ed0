"""A PostgreSQL of the benchmark's own: a free port of the loopback, a folder that goes with it."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.harness.postgres import USER, PostgresServer


@contextmanager
def postgres_server() -> Iterator[str]:
    """The address of a fresh server with an empty database. As often on disk as a Redis that flushes each second."""
    with PostgresServer(synchronous_commit="off") as server, server.database() as name:
        yield f"host=127.0.0.1 port={server.port} user={USER} dbname={name}"
