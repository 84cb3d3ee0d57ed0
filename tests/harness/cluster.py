"""A Redis (or Valkey) Cluster for the tests: three primaries, and a replica of the one that an installation uses."""

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

import redis
from redis.backoff import NoBackoff
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.retry import Retry

from tests.harness.ports import free_port
from tests.harness.redis import RedisServer
from tests.harness.tls import Certificates
from tests.harness.waiting import wait_until


class Cluster:
    """`servers[0]` has the slot of the prefix, `servers[3]` follows it. The nodes look more often than usual.

    `secret`: a password for all; `certificates`: all of it over TLS.
    """

    def __init__(
        self, directory: Path, prefix: str, secret: str = "", certificates: Certificates | None = None
    ) -> None:
        own = {"requirepass": secret, "masterauth": secret} if secret else {}
        login: dict[str, str | bool] = {"password": secret} if secret else {}
        if certificates:
            own |= {**certificates.of_server, "tls-replication": "yes", "tls-cluster": "yes"}
            login |= certificates.of_client | {"ssl": True}
        options = [part for name, value in own.items() for part in (f"--{name}", value)]
        options += ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0"]
        self._buses: dict[RedisServer, int] = {}
        for number in range(4):
            bus = free_port()
            server = RedisServer(directory / f"node{number}", *options, "--cluster-port", str(bus), **login)
            self._buses[server] = bus
        self.servers = list(self._buses)
        self.slot = key_slot(f"{{{prefix}}}:".encode())
        self._login = f":{secret}@" if secret else ""
        self._tls = certificates

    def url(self, database: int) -> str:
        """As the coordinator's settings name it: two of the nodes, one of which is the first primary."""
        scheme, query = ("rediss", f"?{self._tls.query}") if self._tls else ("redis", "")
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers[:2])
        return f"{scheme}+cluster://{self._login}{hosts}/{database}{query}"

    def master(self) -> RedisServer:
        """The node that says of itself that it has the slot; waits for one where a failover goes on."""
        found: list[RedisServer] = []

        def is_there() -> bool:
            found[:] = [one for one in self.servers if self._named(one) == one.port]
            return bool(found)

        wait_until(is_there)
        return found[0]

    def replica(self) -> RedisServer:
        """The one that follows the primary, or is to follow it."""
        first, last = self.servers[0], self.servers[3]
        return first if self.master() is last else last

    def after(self, former: RedisServer) -> RedisServer:
        """The new primary, once all other nodes name it."""
        others = [server for server in self.servers if server is not former]
        wait_until(lambda: all(self._named(one) not in (None, former.port) for one in others))
        return self.master()

    def settle(self) -> None:
        """Wait until a replica follows the primary."""

        def settled() -> bool:
            with self.master().client() as client:
                return bool(client.info("replication").get("slave0", {}).get("state") == "online")

        wait_until(settled)

    def serve(self) -> None:
        """Wait until each node takes the cluster for one that serves."""
        with ExitStack() as opened:
            clients = [opened.enter_context(server.client()) for server in self.servers]
            wait_until(lambda: all(_is_whole(client) for client in clients))

    def __enter__(self) -> Self:
        with ExitStack() as started:
            for server in self.servers:
                started.enter_context(server)
            first, *others = [started.enter_context(server.client()) for server in self.servers]
            third = REDIS_CLUSTER_HASH_SLOTS // 3 + 1
            begins = range(0, REDIS_CLUSTER_HASH_SLOTS, third)
            begins = sorted(begins, key=lambda begin: not begin <= self.slot < begin + third)
            for client, begin in zip([first, *others[:2]], begins, strict=True):
                last = min(begin + third, REDIS_CLUSTER_HASH_SLOTS) - 1
                client.execute_command("CLUSTER ADDSLOTSRANGE", begin, last)
            wait_until(lambda: self._have_met(first, *others))
            wait_until(lambda: all(self._named(server) == self.servers[0].port for server in self.servers))
            others[2].execute_command("CLUSTER REPLICATE", first.execute_command("CLUSTER MYID"))
            wait_until(lambda: all(_is_whole(one) for one in (first, *others)))
            self.settle()
            self._started = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()

    def _have_met(self, first: redis.Redis, *others: redis.Redis) -> bool:
        """All know each other. A handshake that takes too long is forgotten, and begun anew here."""
        for server in self.servers[1:]:
            if not any(address.startswith(f"127.0.0.1:{server.port}") for address in _nodes(first)):
                first.execute_command("CLUSTER MEET", "127.0.0.1", server.port, self._buses[server])
        known = [_nodes(client) for client in (first, *others)]
        return all(len(nodes) == 4 and "handshake" not in str(nodes) for nodes in known)

    def _named(self, server: RedisServer) -> int | None:
        """The port of the primary that this node names; None where it does not answer, or names none."""
        patience = {"socket_timeout": 1, "retry": Retry(NoBackoff(), 0)}  # with one that is paused
        with suppress(redis.ConnectionError, redis.TimeoutError), server.client(**patience) as client:
            for first, last, primary, *_ in client.execute_command("CLUSTER SLOTS"):
                if first <= self.slot <= last:
                    return int(primary[1])
        return None


def _nodes(client: redis.Redis) -> dict[str, object]:
    return dict(client.execute_command("CLUSTER NODES"))


def _is_whole(client: redis.Redis) -> bool:
    """The node takes the cluster for one that serves."""
    return bool(client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
