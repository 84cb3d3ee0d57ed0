"""Redis Sentinel for the tests: a master, its replicas and sentinels, each a process on a loopback port."""

import os
import signal
import subprocess
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from coordinator.local.redis import find_server
from tests.harness.ports import free_port
from tests.harness.proxy import Proxy
from tests.harness.redis import RedisServer
from tests.harness.stopping import stop
from tests.harness.tls import Certificates
from tests.harness.waiting import wait_until

MASTER = "mymaster"


class Sentinels:
    """`servers[0]` is the first master, the others are its replicas. `options`: further ones of the servers.

    The sentinels know each other from their files, and look more often than usual: so a failover takes a second or two.
    `secret`: a password for the servers, and another one for the sentinels; `certificates`: all of them over TLS;
    `proxied`: everybody reaches each server through a proxy.
    """

    def __init__(
        self,
        directory: Path,
        *options: str,
        secret: bool = False,
        certificates: Certificates | None = None,
        proxied: bool = False,
    ) -> None:
        self._directory, self._tls = directory, certificates
        self._secrets = ("of-servers", "of-sentinels") if secret else ("", "")
        given = {"requirepass": self._secrets[0], "masterauth": self._secrets[0]} if secret else {}
        if certificates:
            given |= {**certificates.of_server, "tls-replication": "yes"}
        pairs = [part for name, value in given.items() for part in (f"--{name}", value)]
        options = ("--repl-diskless-sync-delay", "0", *pairs, *options)
        login = self._login(0)
        self.servers: list[RedisServer] = []
        self.proxies: dict[RedisServer, Proxy] = {}
        for number in range(3):
            proxy = Proxy(0) if proxied else None
            own = ("--replica-announce-port", str(proxy.port)) if proxy else ()
            of = ("--replicaof", "127.0.0.1", str(self.port(self.servers[0]))) if number else ()
            server = RedisServer(directory / f"server{number}", *own, *of, *options, **login)
            self.servers.append(server)
            if proxy:
                proxy.target, self.proxies[server] = server.port, proxy
        self._ids: dict[int, str] = {}  # a sentinel's port, and its name
        self._processes: list[subprocess.Popen[bytes]] = []

    def port(self, server: RedisServer) -> int:
        """Where others reach it."""
        return self.proxies[server].port if server in self.proxies else server.port

    @property
    def hosts(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self._ids]

    def url(self, database: int) -> str:
        """As the coordinator's settings name it."""
        servers, sentinels = self._secrets
        login = f":{servers}@" if servers else ""
        query = [f"sentinel_password={sentinels}"] if sentinels else []
        query += [self._tls.query] if self._tls else []
        scheme = "rediss" if self._tls else "redis"
        return f"{scheme}+sentinel://{login}{','.join(self.hosts)}/{MASTER}/{database}?{'&'.join(query)}".rstrip("?")

    def _login(self, which: int) -> dict[str, str | bool]:
        """As redis-py names it: into the servers (0) or the sentinels (1)."""
        secret = {"password": self._secrets[which]} if self._secrets[which] else {}
        return secret | (self._tls.of_client | {"ssl": True} if self._tls else {})

    def broker(self, database: int) -> str:
        """As Celery's do."""
        return ";".join(f"sentinel://{host}/{database}" for host in self.hosts)

    def master(self) -> RedisServer:
        """The server that most sentinels name."""
        named = [port for sentinel in self._ids if (port := self._master_by(sentinel))]
        most = max(set(named), key=named.count)
        return next(server for server in self.servers if self.port(server) == most)

    def after(self, former: RedisServer) -> RedisServer:
        """The new master, once all sentinels name it, and it takes writes."""

        def moved() -> bool:
            named = {self._master_by(sentinel) for sentinel in self._ids}
            return len(named) == 1 and named != {self.port(former)} and self.role(self.master()) == "master"

        wait_until(moved, what=lambda: f"no failover: {self.logs()[-3000:]}")
        return self.master()

    def give_up(self, master: RedisServer) -> RedisServer:
        """Have another one take over, though this one is well; the new master."""

        def begins() -> bool:
            try:
                return bool(self._told(next(iter(self._ids)), "SENTINEL FAILOVER", MASTER))
            except redis.ResponseError as error:  # INPROG: the sentinels began one themselves; else no replica fits yet
                return str(error).startswith("INPROG")

        wait_until(begins, what=self.logs)
        return self.after(master)

    def settle(self, *away: RedisServer) -> None:
        """Wait until all servers but these follow the master and have what it wrote before, so that it may fail without
        a great loss.
        """
        written: dict[RedisServer, int] = {}

        def settled() -> bool:
            master = self.master()
            if master not in written and (wrote := self._written_by(master)) is not None:
                written[master] = wrote
            replicas = [server for server in self.servers if server not in (*away, master)]
            return master in written and all(self._is_synced(one, master, written[master]) for one in replicas)

        wait_until(settled, what=self.logs)

    def pause_sentinel(self, number: int) -> None:
        stop(self._processes[number])

    def resume_sentinel(self, number: int) -> None:
        os.kill(self._processes[number].pid, signal.SIGCONT)

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self._directory.glob("sentinel*.log")))

    def __enter__(self) -> Self:
        with ExitStack() as started:
            for server in self.servers:
                started.enter_context(server)
            for proxy in self.proxies.values():
                started.enter_context(proxy)
            wait_until(lambda: all(self._is_synced(one, self.servers[0]) for one in self.servers[1:]))
            started.callback(self._end)
            # Only now: a connection of anybody may have a free port before long.
            self._ids = {free_port(): uuid.uuid4().hex + "00000000" for _ in range(3)}
            for number, port in enumerate(self._ids):
                self._start(number, port)
            for port in self._ids:
                self._hasten(port)
            wait_until(lambda: all(self._sees(port) for port in self._ids), what=self.logs)
            self._started = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()

    def _start(self, number: int, port: int) -> None:
        file, log = self._directory / f"sentinel{number}.conf", self._directory / f"sentinel{number}.log"
        peers = {peer: name for peer, name in self._ids.items() if peer != port}
        lines = [
            *([f"tls-port {port}", "port 0", "tls-replication yes"] if self._tls else [f"port {port}"]),
            *(f"{name} {value}" for name, value in (self._tls.of_server if self._tls else {}).items()),
            "bind 127.0.0.1",
            f"dir {self._directory}",
            f"sentinel myid {self._ids[port]}",
            f"sentinel monitor {MASTER} 127.0.0.1 {self.port(self.servers[0])} 2",
            f"sentinel down-after-milliseconds {MASTER} 1000",
            f"sentinel failover-timeout {MASTER} 4000",
            f"sentinel parallel-syncs {MASTER} 2",
            *(f"sentinel known-replica {MASTER} 127.0.0.1 {self.port(server)}" for server in self.servers[1:]),
            *(f"sentinel known-sentinel {MASTER} 127.0.0.1 {peer} {name}" for peer, name in peers.items()),
        ]
        if self._secrets[0]:
            lines += [f"sentinel auth-pass {MASTER} {self._secrets[0]}"]
            lines += [f"requirepass {self._secrets[1]}", f"sentinel sentinel-pass {self._secrets[1]}"]
        file.write_text("\n".join(lines) + "\n")
        with log.open("wb") as out:
            self._processes.append(subprocess.Popen([find_server(), str(file), "--sentinel"], stdout=out, stderr=out))

    def _hasten(self, port: int) -> None:
        wait_until(lambda: self._told(port, "PING") is not None, what=self.logs)
        # The usual second between pings is as long as they wait for one: each new master would count as down at first.
        periods = {"ping-period": 200, "ask-period": 200, "publish-period": 300, "info-period": 300}
        self._told(port, "SENTINEL", "DEBUG", *(part for pair in periods.items() for part in pair))

    def _end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def _told(self, port: int, *command: str | int, which: int = 1) -> object:
        """None where it does not answer."""
        with redis.Redis(
            port=port, decode_responses=True, socket_timeout=1, retry=Retry(NoBackoff(), 0), **self._login(which)
        ) as client:
            try:
                return client.execute_command(*command)
            except (redis.ConnectionError, redis.TimeoutError):
                return None

    def _master_by(self, sentinel: int) -> int | None:
        told = self._told(sentinel, "SENTINEL GET-MASTER-ADDR-BY-NAME", MASTER)
        return int(told[1]) if isinstance(told, list | tuple) else None

    def _sees(self, sentinel: int) -> bool:
        told = self._told(sentinel, "SENTINEL MASTERS")
        state = told.get(MASTER, {}) if isinstance(told, dict) else {}
        return bool(state) and (state["num-slaves"], state["num-other-sentinels"]) == (2, 2)

    def role(self, server: RedisServer) -> str:
        """As it says of itself: master or slave."""
        told = self._told(server.port, "ROLE", which=0)
        return str(told[0]) if isinstance(told, list | tuple) else ""

    def _written_by(self, master: RedisServer) -> int | None:
        """The offset of its replication; None where it takes itself for a replica."""
        told = self._told(master.port, "ROLE", which=0)
        return int(told[1]) if isinstance(told, list | tuple) and told[0] == "master" else None

    def _is_synced(self, server: RedisServer, master: RedisServer, written: int = 0) -> bool:
        """It follows the master, and has what that had written at this offset."""
        told = self._told(server.port, "ROLE", which=0)
        return (
            isinstance(told, list | tuple)
            and (told[0], *told[2:4]) == ("slave", self.port(master), "connected")
            and int(told[4]) >= written
        )
