"""Where a connection to Redis leads: two that lead to the same server can be served by one step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class Client(Protocol):
    """A client of redis-py, as far as its address goes."""

    def get_connection_kwargs(self) -> Mapping[str, str | int | None]: ...


class Place(NamedTuple):
    """A database of a server, as it was named: a server with two names is two.

    `address`: host and port, or a socket's path; empty: it has none of its own, as through Sentinel. `user`: what one
    may do, another may not.
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


def named_by(connection: Mapping[str, str | int | None]) -> Place:
    """`connection`: what redis-py makes a connection from."""
    host = connection.get("host")
    address = connection.get("path") or (f"{host}:{connection.get('port', 6379)}" if host else "")
    return Place(str(address), str(connection.get("username") or ""), int(connection.get("db") or 0))
