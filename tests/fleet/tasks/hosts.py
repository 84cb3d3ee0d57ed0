"""Hosts of the tests: each has a folder and a name of its own, and one cable to Redis, PostgreSQL and the members."""

import subprocess
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from examples.demo.member_server import MemberServer
from tasks.member_node.member import Member
from tests.harness.postgres import USER, PostgresServer
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer

SUBNET = "10.77.91"


class Host(Protocol):
    """`launcher`: a command that starts a program on this host. `servers`: the address at which it finds them."""

    name: str
    environ: dict[str, str]
    launcher: tuple[str, ...]
    servers: str

    def cut(self) -> None: ...

    def mend(self) -> None: ...


class _Servers:
    """The way of one host, or of all, to the servers: proxies on an address that it reaches."""

    def __init__(self, redis: RedisServer, postgres: PostgresServer, database: str, address: str) -> None:
        self.redis, self.postgres = Proxy(redis.port, address), Proxy(postgres.port, address)
        self._database = database

    def environ(self, name: str, folder: Path) -> dict[str, str]:
        far = f"{USER}@{self.postgres.address}:{self.postgres.port}/{self._database}"
        return {
            "COORDINATOR_URL": self.redis.url(0),
            "CELERY_BROKER_URL": self.redis.url(1),
            "TASKS_REPLICA_DIR": str(folder / name / "replicas"),
            "TASKS_DATA_DIR": str(folder / name),
            "TASKS_DATABASE_URL": f"postgresql+psycopg://{far}?application_name={name}",
            "TASKS_HOST": name,
        }


class ProxyHost:
    """Works on every machine. The members take another way, and stay in reach of a host that is cut off."""

    launcher = ()
    servers = "127.0.0.1"

    def __init__(self, name: str, servers: _Servers, folder: Path) -> None:
        self.name, self._servers = name, servers
        self.environ = servers.environ(name, folder)

    def cut(self) -> None:
        for proxy in (self._servers.redis, self._servers.postgres):
            proxy.hold()

    def mend(self) -> None:
        for proxy in (self._servers.redis, self._servers.postgres):
            proxy.heal()


class NamespaceHost:
    """A network namespace with a cable to a bridge: what is sent to a host that is cut off is lost, as in life."""

    servers = f"{SUBNET}.1"

    def __init__(self, name: str, environ: Mapping[str, str], bridge: str, address: str) -> None:
        self.name, self.environ = name, dict(environ)
        self._namespace, self._cable = f"{bridge}-{name}", f"{bridge}{name[-1]}"
        self.launcher = ("ip", "netns", "exec", self._namespace)
        ip("netns", "add", self._namespace)
        inside = ("-n", self._namespace)
        ip("link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", self._namespace)
        ip("link", "set", self._cable, "master", bridge, "up")
        ip(*inside, "addr", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip(*inside, "link", "set", device, "up")

    def cut(self) -> None:
        ip("link", "set", self._cable, "down")

    def mend(self) -> None:
        ip("link", "set", self._cable, "up")

    def remove(self) -> None:
        ip("link", "del", self._cable)
        ip("netns", "del", self._namespace)


def ip(*argv: str) -> None:
    subprocess.run(["ip", *argv], check=True, capture_output=True, text=True, timeout=20)


def namespaces_are_permitted() -> bool:
    name = f"cc{uuid.uuid4().hex[:6]}"
    try:
        ip("link", "add", name, "type", "bridge")
        ip("link", "del", name)
        ip("netns", "add", name)
        ip("netns", "del", name)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


Cables = Callable[[Iterable[str], RedisServer, PostgresServer, str, Path], AbstractContextManager[Sequence[Host]]]


@contextmanager
def proxied(
    names: Iterable[str], redis: RedisServer, postgres: PostgresServer, database: str, folder: Path
) -> Iterator[list[ProxyHost]]:
    with ExitStack() as stack:
        hosts = []
        for name in names:
            servers = _Servers(redis, postgres, database, "127.0.0.1")
            for proxy in (servers.redis, servers.postgres):
                stack.enter_context(proxy)
            hosts.append(ProxyHost(name, servers, folder))
        yield hosts


@contextmanager
def namespaces(
    names: Iterable[str],
    redis: RedisServer,
    postgres: PostgresServer,
    database: str,
    folder: Path,
) -> Iterator[list[NamespaceHost]]:
    bridge, address = f"cc{uuid.uuid4().hex[:6]}", NamespaceHost.servers
    with ExitStack() as stack:
        ip("link", "add", bridge, "type", "bridge")
        stack.callback(ip, "link", "del", bridge)
        ip("addr", "add", f"{address}/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        servers = _Servers(redis, postgres, database, address)
        for proxy in (servers.redis, servers.postgres):
            stack.enter_context(proxy)
        hosts = []
        for number, name in enumerate(names, 2):
            environ = servers.environ(name, folder)
            hosts.append(NamespaceHost(name, environ, bridge, f"{SUBNET}.{number}"))
            stack.callback(hosts[-1].remove)
        yield hosts


def in_reach(stack: ExitStack, server: MemberServer, address: str) -> Member:
    """The member as hosts reach it at this address of the machine."""
    port = int(server.member.base_url.rpartition(":")[2].partition("/")[0])
    proxy = stack.enter_context(Proxy(port, address))
    return server.member.model_copy(update={"base_url": f"http://{address}:{proxy.port}/mn"})
