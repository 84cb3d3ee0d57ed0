"""The world of a run: servers, nodes, beats and clients, all real processes, as its seed draws them."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from coordinator.scheduler.entries import Entry
from proof import LIMIT, WIDE
from tests.harness.failover import behind
from tests.harness.fleet import ALONE, Fleet, Worker
from tests.harness.proxy import Proxy
from tests.harness.rabbitmq import Broker, RabbitServer
from tests.harness.redis import RedisServer
from tests.harness.sentinel import Sentinels
from tests.harness.warm import Process, start

NODES, BEATS, CLIENTS = 3, 2, 2
TIMES: dict[str, Any] = {"lock_ttl": 3, "node_ttl": 2, "heartbeat": 0.4, "sweep": 0.2, "slice": 1, "max_losses": 10_000}
TICKS = {"tick/one": 1, "tick/two": 2}  # seconds between two
KEEPS = ("--appendonly", "yes", "--appendfsync", "always")
FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
SKEWS = ("", "+1h", "-1h")


class _Fleet(Fleet):
    apps = "proof"


class World:
    """`has`: what the faults may need: `single` or `sentinel`, `redis` or `rabbitmq`, and `ruin` seldom."""

    def __init__(self, folder: Path, seed: int, requests: int, pause: float) -> None:
        self._folder, self._seed = folder, seed
        self._requests = [str(requests), str(pause)]
        self._chance = random.Random(f"{seed} world")
        self.has = {
            self._chance.choices(["single", "sentinel"], [3, 1])[0],
            self._chance.choices(["redis", "rabbitmq"], [3, 1])[0],
            *self._chance.choices([["ruin"], []], [1, 5])[0],
        }
        self.proxies: dict[str, Proxy] = {}
        self.beats: list[subprocess.Popen[bytes]] = []
        self.clients: dict[str, Process] = {}
        self.sentinels: Sentinels | None = None
        self._born = 0

    @property
    def limits(self) -> dict[str, int]:
        return {f"wide{number}": LIMIT for number in range(WIDE)}

    @property
    def store(self) -> RedisServer:
        return self.sentinels.master() if self.sentinels else self._store

    def folder(self, name: str) -> Path:
        found = self._folder / name
        found.mkdir(parents=True, exist_ok=True)
        return found

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.log = stack.enter_context(RedisServer(self.folder("witness")))
            self.fleet = stack.enter_context(_Fleet(self.log, "proof", self.folder("fleet"), **TIMES))
            if "sentinel" in self.has:
                self.sentinels = stack.enter_context(Sentinels(self.folder("sentinels")))
                behind(self.fleet, self.sentinels)
            else:
                self._store = self._behind_proxy(stack, "store", "COORDINATOR_URL")
            self._results = self._behind_proxy(stack, "backend", "TEST_BACKEND")
            self.fleet.environ.pop("TEST_MASTER", None)
            if "rabbitmq" in self.has:
                self.broker: Any = stack.enter_context(RabbitServer(self.folder("rabbitmq")))
                self.fleet.rabbitmq = Broker(self.broker, self.broker.vhost())
                self.fleet.environ["TEST_BROKER"] = self.fleet.rabbitmq.url
            else:
                self.broker = self._behind_proxy(stack, "broker", "TEST_BROKER")
            self.shop = self.fleet.app("shop")
            self.coordinator = self.shop.coordinator
            self._stack = stack.pop_all()
        self._stack.callback(self._end)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _behind_proxy(self, stack: ExitStack, name: str, variable: str) -> RedisServer:
        server = stack.enter_context(RedisServer(self.folder(name), *KEEPS))
        self.proxies[name] = stack.enter_context(Proxy(server.port))
        self.fleet.environ[variable] = self.proxies[name].url()
        return server

    def begin(self) -> None:
        for key, limit in self.limits.items():
            self.coordinator.set_limit(key, limit, why="wide")
        for name, every in TICKS.items():
            entry = Entry(name, every, "proof.shop.work", key=name, misfire="all", catch_up=10_000)
            self.coordinator.entries.put(entry)
        for _ in range(NODES):
            self.join(ready=True)
        for _ in range(BEATS):
            self.beat()
        for number in range(CLIENTS):
            self.client(f"client{number}")

    # Who takes part.

    def join(self, ready: bool = False) -> Worker:
        self._born += 1
        return self.fleet.worker(f"n{self._born}", 2, *ALONE, ready=ready)

    def worker(self, chance: random.Random) -> Worker:
        """One of those that live; others join where some have ended."""
        while len(living := [one for one in self.fleet.workers if one.process.poll() is None]) < NODES:
            self.join()
        return chance.choice(living)

    def beat(self) -> None:
        """Some have a clock that is an hour wrong."""
        environ = os.environ | self.fleet.environ
        if skew := self._chance.choice(SKEWS):
            assert FAKETIME, "libfaketime is missing: make system installs it"
            environ |= {"LD_PRELOAD": str(FAKETIME[0]), "FAKETIME": skew, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        argv = [sys.executable, "-m", "celery", "-A", "proof.shop", "beat", "--pidfile=", "-l", "INFO"]
        argv += ["-S", "coordinator.scheduler.Scheduler"]
        with (self.folder("fleet") / "beats.log").open("ab") as out:
            self.beats.append(subprocess.Popen(argv, stdout=out, stderr=out, env=environ))

    def client(self, name: str) -> None:
        argv = ["-m", "proof.client", name, str(self._seed), *self._requests]
        with (self.folder("fleet") / f"{name}.log").open("ab") as out:
            self.clients[name] = start(argv, env=os.environ | self.fleet.environ, stdout=out, stderr=out)

    def end_beats(self) -> None:
        while self.beats:
            beat = self.beats.pop()
            beat.kill()
            beat.wait()

    def _end(self) -> None:
        self.end_beats()
        for process in self.clients.values():
            process.kill()
            process.wait()

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder("fleet").glob("*.log")))

    # What the faults do to servers.

    def keep_store(self) -> None:
        """A copy of what is on its disk."""
        kept = self._folder / "kept"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.folder("store"), kept)

    def put_back_store(self) -> None:
        shutil.rmtree(self.folder("store"))
        shutil.copytree(self._folder / "kept", self.folder("store"), dirs_exist_ok=True)

    def fill_broker(self, full: bool) -> None:
        if "rabbitmq" in self.has:
            self.broker.alarm(full)
        else:
            with self.broker.client() as client:
                client.config_set("maxmemory", int(full))

    def queues(self) -> list[str]:
        """The lists of doorbells: of the coordinator's classes and nodes, not of ordinary tasks."""
        with self.broker.client() as client:
            return [name for name in client.scan_iter("proof.*", 1000, _type="LIST") if "coordinator" in name]

    def doorbells(self, take: bool) -> list[tuple[str, bytes]]:
        found = []
        with self.broker.client() as client:
            for queue in self.queues():
                while take and (message := client.rpop(queue)):
                    found.append((queue, message))
        return found

    def put_doorbells(self, messages: list[tuple[str, bytes]]) -> None:
        with self.broker.client() as client:
            for queue, message in messages:
                client.lpush(queue, message)
