"""Creates redis-py clients for the address of a Redis. Behind Sentinel, each new connection looks up the master.

In a cluster, each new connection asks the nodes for the primary of the slot that has the installation's keys. The table
holds for these nodes as for sentinels.

| what happens | what a client does |
|---|---|
| the master dies or hangs | the call fails; the next call connects to the server that is the master by then |
| a sentinel dies or hangs | the client asks the other sentinels; all together get the timeout of one call |
| a sentinel names a server that is no master any more | the client asks the server for its role, and the call fails |
| a new connection to a master takes longer than 0.2 s | the client asks the sentinels again before it is used |
| one thread finds a new master | connections of other threads to the old master are closed before their next use |

An open connection asks no sentinel, so a job takes as many round trips as with a single server.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.crc import key_slot
from redis.credentials import CredentialProvider
from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.retry import Retry
from redis.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)

from coordinator.core.address import through
from coordinator.errors import SettingsError

LATE = 0.2  # seconds; a server that takes longer to answer may have hung, and not know that it is no longer the master
_UNBOUNDED = 2**31  # connections of a pool; with redis-py's default of 100, a call in the 101st thread would fail


class _ToMaster(SentinelManagedConnection):
    """A connection that asks the sentinels for the master whenever it connects, also if a command makes it reconnect,
    and that disconnects from a server that is not the master.
    """

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
        self.connect()  # else redis-py would reconnect to the former address of the master, or to localhost
        super().send_packed_command(command, check_health)  # type: ignore[no-untyped-call]


class _ToMasterOverTls(_ToMaster, SentinelManagedSSLConnection):
    pass


class _ReadableSentinel(Sentinel):
    """redis-py's Sentinel with readable errors, and safe for use by several threads: redis-py's own class reorders its
    list of sentinels in place, and can lose one of them.
    """

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
            raise MasterNotFoundError(f"the master {service_name!r} is down, and the sentinels name no new one yet")
        if known or len(silent) < len(sentinels):
            names = ", ".join(map(repr, sorted(known))) or "none"
            raise MasterNotFoundError(
                f"the sentinels know no master {service_name!r}; name one that they know in the URL: {names}"
            )
        raise MasterNotFoundError(f"no sentinel answers ({'; '.join(silent)})")


class _ClusterNodes(Sentinel):
    """Nodes of a Redis Cluster, in the place of sentinels: `discover_master` asks them for the primary of the slot that
    has the key `service_name`.
    """

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
                # Ask the named primary last next time: after it hung, it may not know that another node has taken over.
                self.sentinels = sorted(nodes, key=lambda other: _address_of(other) == f"{host}:{primary[1]}")
                return host, int(primary[1])
            why.append(f"{_address_of(node)}: no node has slot {slot}")
        raise MasterNotFoundError(f"no node of the cluster names a primary ({'; '.join(why)})")


def _address_of(sentinel: redis.Redis) -> str:
    options = sentinel.connection_pool.connection_kwargs
    return f"{options['host']}:{options['port']}"


def _why(error: RedisError) -> str:
    if isinstance(error, AuthenticationError):
        return "refuses the user or password; the URL sets these by ?sentinel_username=…&sentinel_password=…"
    if isinstance(error, ResponseError) and "unknown command" in str(error).lower():
        return "the server at this address is not a sentinel"
    return str(error)


class Server:
    """The Redis at an address: one server, or the current master behind Sentinel or in a cluster.

    `timeout`: seconds to wait for one reply, and for the replies of all sentinels together. `keys`: the text with which
    all keys begin, which tells the slot in a cluster. `source`: where the URL was set, for errors. `login`: asked for
    user and password, in place of those in the URL; sentinels have their own. `introduce`: called with each connection
    that a client has opened. Raises SettingsError if the URL has options that redis-py does not know.
    """

    def __init__(
        self, url: str, timeout: float, keys: str, source: str = "constructor", login: CredentialProvider | None = None,
        introduce: Callable[[redis.Connection], None] | None = None,
    ) -> None:  # fmt: skip
        self.slot = key_slot(keys.encode())
        self._url = url
        self._source = source
        self._timeout = timeout
        self._login, self._introduce = login, introduce
        self._parts = parts = through(url)
        self._name = parts.master or keys if parts else ""
        self._sentinels: Sentinel | None = None
        if parts is not None:
            wait = timeout / len(parts.hosts)
            ours = {"socket_timeout": wait, "socket_connect_timeout": wait, "retry": Retry(NoBackoff(), 0)}
            options = self._parsed(parts.sentinels)
            if not parts.master:
                self._log_in(options)
            over_tls = {"ssl": True} if options.pop("connection_class", None) else {}
            with self._option_errors():
                group = _ReadableSentinel if parts.master else _ClusterNodes
                self._sentinels = group(parts.hosts, sentinel_kwargs=ours | options | over_tls)

    @property
    def moves(self) -> bool:
        """True if the address leads to another server after a failover: through Sentinel, or to a cluster."""
        return self._parts is not None

    def client(self, timeout: float) -> redis.Redis:
        """Create a redis-py client whose calls block up to `timeout` seconds. The client connects at its first call."""
        options: dict[str, object] = {
            "max_connections": _UNBOUNDED,
            "socket_timeout": timeout,
            "socket_connect_timeout": min(timeout, self._timeout),
            "retry": Retry(NoBackoff(), 0),
            "redis_connect_func": self._introduce,
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
        self._log_in(client.connection_pool.connection_kwargs)
        with self._option_errors():
            client.connection_pool.connection_class(**client.connection_pool.connection_kwargs)
        return client

    def _log_in(self, options: dict[str, object]) -> None:
        """Put the login into the options of a connection, if there is one beside the URL."""
        if self._login:
            options.pop("username", None)
            options.pop("password", None)
            options["credential_provider"] = self._login

    def find(self) -> tuple[str, int]:
        """Ask the sentinels, or the nodes of the cluster, for host and port of the master. To be called only if `moves`
        is true.
        """
        assert self._sentinels
        address: tuple[str, int] = self._sentinels.discover_master(self._name)
        return address

    def master(self, client: redis.Redis) -> str:
        """Return HOST:PORT of the master that `client` found last behind Sentinel or in a cluster; "" for a single
        server.
        """
        pool = client.connection_pool
        if not isinstance(pool, SentinelConnectionPool):
            return ""
        return "{}:{}".format(*(pool.master_address or pool.get_master_address()))

    def _parsed(self, url: str) -> dict[str, object]:
        with self._option_errors():
            return dict(parse_url(url))

    @contextmanager
    def _option_errors(self) -> Iterator[None]:
        """Raise redis-py's errors about an option of the URL, in this block, as SettingsError."""
        try:
            yield
        except (TypeError, ValueError, RedisError) as error:
            wrong = re.sub(r"^.*got an ", "", str(error))
            hint = "; with ssl_… the URL begins with rediss" if "'ssl_" in wrong else ""
            raise SettingsError(
                f"setting url ({self._source}): redis-py refuses an option of the URL: {wrong}{hint}"
            ) from error
