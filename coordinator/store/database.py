"""The server and database of a connection to Redis. One step can write to two databases of one server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, runtime_checkable


class Client(Protocol):
    """The part of a redis-py client that knows its address."""

    def get_connection_kwargs(self) -> Mapping[str, object]: ...


class SentinelGroup(Protocol):
    """Redis-py's view of a group of sentinels."""

    sentinels: Iterable[Client]


@runtime_checkable
class SentinelPool(Protocol):
    """The connection pool of a client that finds its server through Sentinel."""

    service_name: str
    sentinel_manager: SentinelGroup


class Database(NamedTuple):
    """A database of a server, compared by its address: one server under two names counts as two.

    `address`: host and port, or a socket's path; through Sentinel the master's name and all sentinels. Two equal
    addresses through Sentinel lead to one server, except for the moments of a failover, and even then the writes of a
    step are kept or lost together. `user`: compared too, because each has rights of its own.
    """

    address: str
    user: str
    database: int

    def is_beside(self, other: Database) -> bool:
        """True for two databases of one server, for one user."""
        return bool(self.address) and (self.address, self.user) == (other.address, other.user)


def database_of(client: Client) -> Database:
    """The database of a redis-py client."""
    connection = client.get_connection_kwargs()
    host = connection.get("host")
    address = connection.get("path") or (f"{host}:{connection.get('port', 6379)}" if host else "")
    pool = connection.get("connection_pool")
    if isinstance(pool, SentinelPool):
        sentinels = (database_of(client).address for client in pool.sentinel_manager.sentinels)
        address = " ".join((pool.service_name, *sorted(sentinels)))
    return Database(str(address), str(connection.get("username") or ""), int(str(connection.get("db") or 0)))
