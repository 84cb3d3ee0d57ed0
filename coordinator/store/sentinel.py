"""Creates clients of the server at an address. Through Sentinel, each new connection looks up the current master.

In a cluster, it looks up the primary of the installation's slot: what follows holds for nodes as for sentinels.

| what happens | what a client does |
|---|---|
| the master dies or hangs | the call fails; the next one connects anew, to the server that the sentinels name then |
| a sentinel dies or hangs | the client asks the others; all together have the time of one call |
| a sentinel is late and names a server that is no master any more | that server says so, and the call fails |
| a master that hung answers at last | the client asks the sentinels once more |
| one thread finds a new master | connections of other threads to the old one are closed before their next use |

A working connection asks no sentinel, so a job costs no more round trips than on one server.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.crc import key_slot
from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.retry import Retry
from redis.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)

from coordinator.address import through
from coordinator.errors import SettingsError

LATE = 0.2  # seconds; a server that answers later may have hung, and wrongly believe that it is still the master
_UNBOUNDED = 2**31  # redis-py's bound of 100 refuses the 101st thread that asks or waits, on a healthy Redis


class _ToMaster(SentinelManagedConnection):
    """Looks up the master at each connect, also where a command connects, and disconnects from any other server."""

    def connect_to(self, address: tuple[str, int]) -> None:
        began = time.monotonic()
        super().connect_to(address)  # type: ignore[no-untyped-call]
        try:
            self.send_command("HELLO", check_health=False)
            hello = self.read_response()
            pairs = hello if isinstance(hello, Mapping) else dict(zip(hello[::2], hello[1::2], strict=True))
            is_master = pairs.get(b"role", pairs.get("role")) in (b"master", "master")
            if is_master and time.monotonic() - began > LATE:
                is_master = self.connection_pool.get_master_address() == address
            if not is_master:
                raise redis.ConnectionError(f"{address[0]}:{address[1]} is not the master any more")
        except BaseException:
            self.disconnect()
            raise

    def send_packed_command(self, command: object, check_health: bool = True) -> None:
        self.connect()  # redis-py would connect to its former address, or to localhost
        super().send_packed_command(command, check_health)  # type: ignore[no-untyped-call]


class _ToMasterOverTls(_ToMaster, SentinelManagedSSLConnection):
    pass


class _ReadableSentinel(Sentinel):
    """redis-py's Sentinel with readable errors, and safe for threads: redis-py's own can lose a sentinel."""

    def discover_master(self, service_name: str) -> tuple[str, int]:
        sentinels: list[redis.Redis] = list(self.sentinels)
        silent: list[str] = []
        known: set[str] = set()
        for sentinel in sentinels:
            try:
                masters = cast("dict[str, dict[str, object]]", sentinel.sentinel_masters())
            except RedisError as error:
                silent.append(f"{_address_of(sentinel)}: {_why(error)}")
                continue
            known.update(masters)
            state = masters.get(service_name)
            if state and self.check_master_state(state, service_name):
                self.sentinels = [sentinel, *(other for other in sentinels if other is not sentinel)]
                return str(state["ip"]), int(str(state["port"]))
        if service_name in known:
            raise MasterNotFoundError(f"the master {service_name!r} is down, and the sentinels have no other one yet")
        if known or len(silent) < len(sentinels):
            names = ", ".join(map(repr, sorted(known))) or "none"
            raise MasterNotFoundError(
                f"the sentinels know no master {service_name!r}, but {names}: name one of them behind the sentinels"
            )
        raise MasterNotFoundError(f"no sentinel answers ({'; '.join(silent)})")


class _ClusterNodes(Sentinel):
    """Nodes of a cluster, which are asked as sentinels are: for the primary of the slot of a name."""

    def discover_master(self, service_name: str) -> tuple[str, int]:
        slot, nodes, why = key_slot(service_name.encode()), list[redis.Redis](self.sentinels), list[str]()
        for node in nodes:
            try:
                ranges = node.execute_command("CLUSTER SLOTS")
            except RedisError as error:
                why.append(f"{_address_of(node)}: {error}")
                continue
            primary = next((primary for first, last, primary, *_ in ranges if first <= slot <= last), None)
            if primary:
                host = (primary[0] or b"").decode() or str(node.connection_pool.connection_kwargs["host"])
                # One that hung still takes itself for the primary: the others know better.
                self.sentinels = sorted(nodes, key=lambda other: _address_of(other) == f"{host}:{primary[1]}")
                return host, int(primary[1])
            why.append(f"{_address_of(node)}: no node has slot {slot}")
        raise MasterNotFoundError(f"no node of the cluster names a primary ({'; '.join(why)})")


def _address_of(sentinel: redis.Redis) -> str:
    options = sentinel.connection_pool.connection_kwargs
    return f"{options['host']}:{options['port']}"


def _why(error: RedisError) -> str:
    if isinstance(error, AuthenticationError):
        return "it wants another user or password: sentinel_username=…&sentinel_password=…"
    if isinstance(error, ResponseError) and "unknown command" in str(error).lower():
        return "a server answers there that is no sentinel"
    return str(error)


class Server:
    """The server at an address, which may change through Sentinel. `timeout`: seconds for one reply, and for all
    sentinels together; `keys`: how all keys begin; `source`: where the URL comes from. Raises SettingsError for options
    that redis-py does not know.
    """

    def __init__(self, url: str, timeout: float, keys: str, source: str = "constructor") -> None:
        self._url = url
        self._source = source
        self._timeout = timeout
        self._parts = parts = through(url)
        self._name = parts.master or keys if parts else ""
        self._sentinels: Sentinel | None = None
        if parts is not None:
            wait = timeout / len(parts.hosts)
            ours = {"socket_timeout": wait, "socket_connect_timeout": wait, "retry": Retry(NoBackoff(), 0)}
            options = self._parsed(parts.sentinels)
            over_tls = {"ssl": True} if options.pop("connection_class", None) else {}
            with self._option_errors():
                group = _ReadableSentinel if parts.master else _ClusterNodes
                self._sentinels = group(parts.hosts, sentinel_kwargs=ours | options | over_tls)

    @property
    def moves(self) -> bool:
        """True where the address leads to another server after a failover."""
        return self._parts is not None

    def client(self, timeout: float) -> redis.Redis:
        """Create a client whose calls block up to `timeout` seconds. It connects at its first call."""
        options: dict[str, object] = {
            "max_connections": _UNBOUNDED,
            "socket_timeout": timeout,
            "socket_connect_timeout": min(timeout, self._timeout),
            "retry": Retry(NoBackoff(), 0),
        }
        if not self._url.startswith("unix"):
            options["socket_keepalive"] = True
        if self._parts is None or self._sentinels is None:
            with self._option_errors():
                client = redis.Redis.from_url(self._url, **options)
        else:
            options |= self._parsed(self._parts.servers)
            options["connection_class"] = _ToMasterOverTls if "connection_class" in options else _ToMaster
            client = self._sentinels.master_for(self._name, **options)
        with self._option_errors():
            client.connection_pool.connection_class(**client.connection_pool.connection_kwargs)
        return client

    def find(self) -> tuple[str, int]:
        """Ask the sentinels for the master's address. Only where the address `moves`."""
        assert self._sentinels
        address: tuple[str, int] = self._sentinels.discover_master(self._name)
        return address

    def master(self, client: redis.Redis) -> str:
        """HOST:PORT of the master that Sentinel named to this client last; empty without Sentinel."""
        pool = client.connection_pool
        if not isinstance(pool, SentinelConnectionPool):
            return ""
        return "{}:{}".format(*(pool.master_address or pool.get_master_address()))

    def _parsed(self, url: str) -> dict[str, object]:
        with self._option_errors():
            return dict(parse_url(url))

    @contextmanager
    def _option_errors(self) -> Iterator[None]:
        """Turns redis-py's errors about an option of the URL into SettingsError."""
        try:
            yield
        except (TypeError, ValueError, RedisError) as error:
            wrong = re.sub(r"^.*got an ", "", str(error))
            hint = "; with ssl_… the URL begins with rediss" if "'ssl_" in wrong else ""
            raise SettingsError(
                f"setting url ({self._source}): Redis' client refuses an option: {wrong}{hint}"
            ) from error
