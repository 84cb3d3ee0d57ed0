"""Where a connection to Redis leads: two that lead to the same server can be served by one step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, runtime_checkable


class Client(Protocol):
    """A client of redis-py, as far as its address goes."""

    def get_connection_kwargs(self) -> Mapping[str, object]: ...


class Watch(Protocol):
    """Redis-py's view of a group of sentinels."""

    sentinels: Iterable[Client]


@runtime_checkable
class Behind(Protocol):
    """The pool of a client that goes through Sentinel."""

    service_name: str
    sentinel_manager: Watch


class Place(NamedTuple):
    """A database of a server, as it was named: a server with two names is two.

    `address`: host and port, or a socket's path; through Sentinel the master's name and all sentinels. Two that have
    these in common lead to one server, except for the moments of a failover. The writes of a step are then kept or
    lost together, on whichever server. `user`: what one may do, another may not.
    """

    address: str
    user: str
    database: int

    def is_beside(self, other: Place) -> bool:
        """Is that a database of the same server, for the same user?"""
        return bool(self.address) and (self.address, self.user) == (other.address, other.user)


def place_of(client: Client) -> Place:
    """`client`: of redis-py."""
    return named_by(client.get_connection_kwargs())


def named_by(connection: Mapping[str, object]) -> Place:
    """`connection`: what redis-py makes a connection from."""
    host = connection.get("host")
    address = connection.get("path") or (f"{host}:{connection.get('port', 6379)}" if host else "")
    pool = connection.get("connection_pool")
    if isinstance(pool, Behind):
        sentinels = (place_of(one).address for one in pool.sentinel_manager.sentinels)
        address = " ".join((pool.service_name, *sorted(sentinels)))
    return Place(str(address), str(connection.get("username") or ""), int(str(connection.get("db") or 0)))
