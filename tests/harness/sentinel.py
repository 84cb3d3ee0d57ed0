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

from coordinator.local.redis import find_server, free_port
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

MASTER = "mymaster"


class Sentinels:
    """`servers[0]` is the first master, the others are its replicas. `options`: further ones of the servers.

    The sentinels know each other from their files, and look more often than usual: so a failover takes a second or two.
    """

    def __init__(self, directory: Path, *options: str, servers: int = 3, down_after: int = 1000) -> None:
        self._directory = directory
        options = ("--repl-diskless-sync-delay", "0", *options)
        self.servers = [RedisServer(directory / "server0", *options)]
        options = ("--replicaof", "127.0.0.1", str(self.servers[0].port), *options)
        self.servers += [RedisServer(directory / f"server{one}", *options) for one in range(1, servers)]
        self._down_after = down_after
        self._ids = {free_port(): uuid.uuid4().hex + "00000000" for _ in range(3)}
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def hosts(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self._ids]

    def url(self, database: int) -> str:
        """As the coordinator's settings name it."""
        return f"redis+sentinel://{','.join(self.hosts)}/{MASTER}/{database}"

    def broker(self, database: int) -> str:
        """As Celery's do."""
        return ";".join(f"sentinel://{host}/{database}" for host in self.hosts)

    def master(self) -> RedisServer:
        """The server that most sentinels name."""
        named = [port for sentinel in self._ids if (port := _master_by(sentinel))]
        most = max(set(named), key=named.count)
        return next(server for server in self.servers if server.port == most)

    def after(self, former: RedisServer) -> RedisServer:
        """The new master, once all sentinels name it, and it takes writes."""

        def moved() -> bool:
            named = {_master_by(sentinel) for sentinel in self._ids}
            return len(named) == 1 and named != {former.port} and _role(self.master()) == "master"

        wait_until(moved, 30, lambda: f"no failover: {self.logs()[-3000:]}")
        return self.master()

    def settle(self, *away: RedisServer) -> None:
        """Wait until all servers but these follow the master, so that it may fail without a great loss."""
        replicas = [server for server in self.servers if server not in (*away, self.master())]
        wait_until(lambda: all(_is_synced(one, self.master()) for one in replicas), 30, self.logs)

    def pause_sentinel(self, number: int) -> None:
        os.kill(self._processes[number].pid, signal.SIGSTOP)

    def resume_sentinel(self, number: int) -> None:
        os.kill(self._processes[number].pid, signal.SIGCONT)

    def role(self, server: RedisServer) -> str:
        """As it says of itself: master or slave."""
        return _role(server)

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self._directory.glob("sentinel*.log")))

    def __enter__(self) -> Self:
        with ExitStack() as started:
            for server in self.servers:
                started.enter_context(server)
            wait_until(lambda: all(_is_synced(one, self.servers[0]) for one in self.servers[1:]), 20)
            started.callback(self._end)
            for number, port in enumerate(self._ids):
                self._start(number, port)
            wait_until(lambda: all(_sees(port, len(self.servers) - 1) for port in self._ids), 20, self.logs)
            self._started = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()

    def _start(self, number: int, port: int) -> None:
        file, log = self._directory / f"sentinel{number}.conf", self._directory / f"sentinel{number}.log"
        peers = {peer: name for peer, name in self._ids.items() if peer != port}
        lines = [
            f"port {port}",
            "bind 127.0.0.1",
            f"dir {self._directory}",
            f"sentinel myid {self._ids[port]}",
            f"sentinel monitor {MASTER} 127.0.0.1 {self.servers[0].port} 2",
            f"sentinel down-after-milliseconds {MASTER} {self._down_after}",
            f"sentinel failover-timeout {MASTER} 4000",
            f"sentinel parallel-syncs {MASTER} 2",
            *(f"sentinel known-replica {MASTER} 127.0.0.1 {server.port}" for server in self.servers[1:]),
            *(f"sentinel known-sentinel {MASTER} 127.0.0.1 {peer} {name}" for peer, name in peers.items()),
        ]
        file.write_text("\n".join(lines) + "\n")
        with log.open("wb") as out:
            self._processes.append(subprocess.Popen([find_server(), str(file), "--sentinel"], stdout=out, stderr=out))
        wait_until(lambda: _told(port, "PING") is not None, 10, self.logs)
        _told(port, "SENTINEL", "DEBUG", "ask-period", 200, "publish-period", 300, "info-period", 300)

    def _end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def _told(port: int, *command: str | int) -> object:
    """None where it does not answer."""
    with redis.Redis(port=port, decode_responses=True, socket_timeout=1, retry=Retry(NoBackoff(), 0)) as client:
        try:
            return client.execute_command(*command)
        except (redis.ConnectionError, redis.TimeoutError):
            return None


def _master_by(sentinel: int) -> int | None:
    told = _told(sentinel, "SENTINEL GET-MASTER-ADDR-BY-NAME", MASTER)
    return int(told[1]) if isinstance(told, list | tuple) else None


def _sees(sentinel: int, replicas: int) -> bool:
    told = _told(sentinel, "SENTINEL MASTERS")
    state = told.get(MASTER, {}) if isinstance(told, dict) else {}
    return bool(state) and (state["num-slaves"], state["num-other-sentinels"]) == (replicas, 2)


def _role(server: RedisServer) -> str:
    told = _told(server.port, "ROLE")
    return str(told[0]) if isinstance(told, list | tuple) else ""


def _is_synced(server: RedisServer, master: RedisServer) -> bool:
    told = _told(server.port, "ROLE")
    return isinstance(told, list | tuple) and (told[0], *told[2:4]) == ("slave", master.port, "connected")
