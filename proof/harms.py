"""The faults of the nemesis in servers, processes, wake-ups and clocks.

A fault is a generator: it begins before its `yield`, and ends after it. It yields its effects: `victims`, processes
that may be late by more than a lease; `nodes` that may be declared dead; `killed` clients; `loses`, the number of last
seconds that the store may forget.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil

from proof import LEASE, OFFSETS
from proof.history import History
from proof.members import STEPS
from proof.swarm import SLOTS
from proof.swarm.fleet import SILENT
from tests.harness.fleet import Worker
from tests.harness.stopping import stop

if TYPE_CHECKING:
    from proof.world import World

Act = Callable[["World", random.Random], Iterator[Any]]
LONG = 1.2 * LEASE, 3 * LEASE  # s, of a stop
RUBBISH = b"{rubbish", b"\xff", 300 * b"9", 1_000_000 * b"9"  # no name of a wake-up, no text, too long


@dataclass(frozen=True)
class Kind:
    """A target has one fault at a time. `seconds`: its length, from and to. `halts`: all processes may be late."""

    name: str
    act: Act
    way: str
    target: str
    often: float
    seconds: tuple[float, float]
    halts: bool
    on: frozenset[str]


KINDS: list[Kind] = []


def fault(
    way: str,
    target: str,
    often: float = 2,
    seconds: tuple[float, float] = (0, 0),
    halts: bool = False,
    on: tuple[str, ...] = (),
    name: str = "",
) -> Callable[[Act], Act]:
    def listed(act: Act) -> Act:
        named = name or act.__name__.replace("_", " ")
        KINDS.append(Kind(named, act, way, target, often, seconds, halts, frozenset(on)))
        return act

    return listed


def _harmed(*workers: Worker, gone: bool = False) -> dict[str, Any]:
    """These workers' processes may be late, and their nodes declared dead; `gone`: for good."""
    victims = [] if gone else [pid for worker in workers for pid in (worker.pid, *_pids(worker.children()))]
    return {"victims": victims, "nodes": [worker.name for worker in workers], "gone": gone}


def _pids(processes: list[psutil.Process]) -> list[int]:
    return [process.pid for process in processes]


def _node_in(world: World, process: psutil.Process) -> list[Worker]:
    """The node whose main process this is: with threads or gevent, its bodies run there."""
    return [worker for worker in world.fleet.workers if worker.pid == process.pid]


def at_work(world: World, clients: bool = False) -> list[psutil.Process]:
    """The processes, of nodes or of clients, in which a body runs."""
    runs = [run for run in History.from_lines(world.witness.lines(400), {}).runs if not run.ended]
    names = [run.begun.process.rpartition("/") for run in runs]
    pids = {int(pid) for name, _, pid in names if (name in world.clients) == clients and pid.isdecimal()}
    return [psutil.Process(pid) for pid in sorted(pids) if psutil.pid_exists(pid)]


def _caught(world: World, chance: random.Random, clients: bool = False) -> psutil.Process:
    """Stop a process in the midst of a body, and return it."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        if busy := at_work(world, clients):
            process = chance.choice(busy)
            stop(process)
            if process in at_work(world, clients):
                return process
            process.resume()
    raise IndexError("no process is at work")


# Processes.


@fault("kill", "process", 6)
def kill_a_pool_process(world: World, chance: random.Random) -> Iterator[Any]:
    """Mostly one at work; the whole node where it has only one."""
    busy = at_work(world) if chance.random() < 0.8 else []
    if not busy:
        worker = world.worker(chance)
        busy = worker.children() or [psutil.Process(worker.pid)]
    process = chance.choice(busy)
    nodes = _node_in(world, process)
    process.kill()
    for node in nodes:
        node.process.wait()
    yield _harmed(*nodes, gone=True) if nodes else {}
    world.refill()


@fault("kill", "process", 3)
def kill_a_supervisor(world: World, chance: random.Random) -> Iterator[Any]:
    worker = world.worker(chance)
    harmed = _harmed(worker)
    worker.supervisor().kill()
    yield harmed


@fault("kill", "process")
def kill_maintenance(world: World, chance: random.Random) -> Iterator[Any]:
    world.worker(chance).supervisor().children()[0].kill()
    yield {}


@fault("kill", "process")
def kill_a_node(world: World, chance: random.Random) -> Iterator[Any]:
    worker = world.worker(chance)
    worker.end()
    yield _harmed(worker, gone=True)
    world.join()


@fault("kill", "process")
def kill_the_main_process_of_a_node(world: World, chance: random.Random) -> Iterator[Any]:
    worker = world.worker(chance)
    worker.kill()
    worker.process.wait()
    yield _harmed(worker, gone=True)
    world.join()


def _ended(signals: Callable[[Worker], object], world: World, chance: random.Random) -> Iterator[Any]:
    worker = world.worker(chance)
    signals(worker)
    world.join()
    yield _harmed(worker, gone=True)


def _twice(worker: Worker) -> None:
    """A second Ctrl-C, once the node has noticed the first."""
    worker.kill(signal.SIGINT)
    time.sleep(0.3)
    worker.kill(signal.SIGINT)


for _name, _act in {
    "stop a node at once": lambda worker: worker.kill(signal.SIGQUIT),
    "restart a node": lambda worker: worker.kill(signal.SIGTERM),
    "end a whole group": lambda worker: os.killpg(worker.pid, signal.SIGTERM),
    "press Ctrl-C twice": _twice,
}.items():
    fault("restart", "process", 1, name=_name)(partial(_ended, _act))


@fault("restart", "process", 1)
def restart_every_node(world: World, chance: random.Random) -> Iterator[Any]:
    """Restart all nodes, one after the other, or all at once."""
    rolling, workers = chance.random() < 0.5, world.living()
    for worker in workers:
        worker.kill(signal.SIGTERM)
        world.join()
        if rolling:
            time.sleep(chance.uniform(0, 1))
    yield _harmed(*workers, gone=True)


@fault("stop", "stopped", 6, LONG)
def stop_a_pool_process(world: World, chance: random.Random) -> Iterator[Any]:
    process = _caught(world, chance)
    nodes = _node_in(world, process)
    yield from _stopped([process], _harmed(*nodes) if nodes else {"victims": [process.pid]})


@fault("stop", "stopped", 2, LONG)
def stop_a_supervisor(world: World, chance: random.Random) -> Iterator[Any]:
    worker = world.worker(chance)
    yield from _stopped([worker.supervisor()], _harmed(worker))


@fault("stop", "stopped", 1, LONG)
def stop_maintenance(world: World, chance: random.Random) -> Iterator[Any]:
    yield from _stopped([world.worker(chance).supervisor().children()[0]], {})


@fault("stop", "stopped", 1, LONG)
def stop_a_main_process(world: World, chance: random.Random) -> Iterator[Any]:
    worker = world.worker(chance)
    yield from _stopped([psutil.Process(worker.pid)], _harmed(worker))


@fault("stop", "stopped", 2, LONG)
def stop_a_whole_node(world: World, chance: random.Random) -> Iterator[Any]:
    worker = world.worker(chance)
    main = psutil.Process(worker.pid)
    yield from _stopped([main, *main.children(recursive=True)], _harmed(worker))


@fault("stop", "stopped", 1, (0, 6))
def stop_a_beat(world: World, chance: random.Random) -> Iterator[Any]:
    yield from _stopped([psutil.Process(chance.choice(world.beats).pid)], {})


@fault("stop", "client", 3, LONG)
def stop_a_client(world: World, chance: random.Random) -> Iterator[Any]:
    """Kill a client that holds a lock, or any."""
    with suppress(IndexError):
        process = _caught(world, chance, clients=True)
        yield from _stopped([process], {"victims": [process.pid]})
        return
    process = psutil.Process(chance.choice([one.pid for one in world.clients.values() if one.poll() is None]))
    yield from _stopped([process], {"victims": [process.pid]})


def _stopped(processes: list[psutil.Process], harmed: dict[str, Any]) -> Iterator[Any]:
    stop(*processes)
    yield harmed
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.resume()


# Relays of an outbox, which are threads of maintenance, and its database.


def _relays(world: World, chance: random.Random) -> list[psutil.Process]:
    """Some of those of all nodes, or all; one of all works."""
    supervisors = [one for worker in world.living() for one in worker.supervisors()]
    relays = [child for supervisor in supervisors for child in supervisor.children()]
    return chance.sample(relays, chance.randint(1, len(relays))) if relays else []


@fault("kill", "relay", 6, on=("outbox",))
def kill_relays(world: World, chance: random.Random) -> Iterator[Any]:
    for relay in _relays(world, chance):
        relay.kill()
    yield {}


@fault("stop", "relay", 4, LONG, on=("outbox",))
def stop_relays(world: World, chance: random.Random) -> Iterator[Any]:
    yield from _stopped(_relays(world, chance), {})


@fault("server", "database", 4, (0, 3), on=("outbox",))
def restart_the_database_of_an_outbox(world: World, chance: random.Random) -> Iterator[Any]:
    world.database.kill()
    yield {}
    world.database.start()


# A swarm: a hundred nodes in a few processes. One that starts again is left alone until it should be up.


@fault("kill", "swarm", 3, (4, 8), on=("swarm",))
def kill_a_third_of_the_swarm(world: World, chance: random.Random) -> Iterator[Any]:
    """Its nodes come back under other incarnations, once Redis knows that those before are dead."""
    part = world.part(chance)
    part.kill()
    part.start()
    yield {"nodes": part.nodes}


@fault("restart", "swarm", 2, (4, 8), on=("swarm",))
def restart_a_third_of_the_swarm(world: World, chance: random.Random) -> Iterator[Any]:
    """It drains while the next process waits for the names of its nodes."""
    part = world.part(chance)
    part.drain()
    part.start()
    yield {"nodes": part.nodes}


@fault("stop", "swarm", 3, SILENT, on=("swarm",))
def stop_a_third_of_the_swarm(world: World, chance: random.Random) -> Iterator[Any]:
    part = world.part(chance)
    yield from _stopped([psutil.Process(part.process.pid)], {"victims": part.slots, "nodes": part.nodes})


@fault("stop", "swarm", 2, SILENT, on=("swarm",))
def silence_a_node_of_the_swarm(world: World, chance: random.Random) -> Iterator[Any]:
    """Its supervisor stands still, while its runners go on."""
    part = world.part(chance)
    part.say("silence")
    yield {"victims": part.slots[:SLOTS], "nodes": part.nodes[:1]}
    part.say("speak")


# Members of a replica set of documents.


@fault("kill", "member", 3, (0, 3), on=("documents",))
def kill_a_member(world: World, chance: random.Random) -> Iterator[Any]:
    """Kill it at once, or at a step of its next version."""
    member = world.member(chance)
    member.kill()
    if chance.random() < 0.7:
        member.start(chance.choice(STEPS))
    yield {}
    member.kill()
    member.start()


@fault("stop", "member", 2, (0, 5), on=("documents",))
def stop_a_member(world: World, chance: random.Random) -> Iterator[Any]:
    member = world.member(chance)
    member.pause()
    yield {}
    member.resume()


@fault("full", "member", 1, (0, 3), on=("documents",))
def fill_the_disk_of_a_member(world: World, chance: random.Random) -> Iterator[Any]:
    member = world.member(chance)
    member.fill()
    yield {}
    member.fill(False)


@fault("kill", "beat", 3, (0, 3))
def kill_a_beat(world: World, chance: random.Random) -> Iterator[Any]:
    beat = world.beats.pop(chance.randrange(len(world.beats)))
    beat.kill()
    beat.wait()
    yield {}
    world.beat()


@fault("kill", "client", 3, (0, 1))
def kill_a_client(world: World, chance: random.Random) -> Iterator[Any]:
    name = chance.choice([*world.clients])
    process = world.clients[name]
    process.kill()
    process.wait()
    yield {"killed": [f"{name}/{process.pid}"]}
    world.client(name)


# Connections: to each server, in each way.


def _cut(way: str, target: str, world: World, chance: random.Random) -> Iterator[Any]:
    harmed = {}
    if target == "node":
        worker = world.worker(chance)
        target, harmed = worker.name, _harmed(worker)
    proxy = world.proxy(target)
    if way == "slow":
        proxy.delay = chance.uniform(0.1, 1.0)
    else:
        getattr(proxy, way)()
    yield harmed
    proxy.delay = 0.0
    proxy.heal()


def _on(target: str, way: str) -> tuple[str, ...]:
    """Behind Sentinel, a master that does not answer leads to a failover."""
    return ("single",) if target == "store" else ()


for _target, _often in {"store": 2.0, "broker": 0.8, "backend": 0.6}.items():
    for _way in ("cut", "swallow", "hold", "slow"):
        fault("cut", _target, _often, (0, 5), _target == "store", _on(_target, _way), f"{_way} {_target}")(
            partial(_cut, _way, _target)
        )
for _way in ("cut", "swallow", "hold"):
    fault("cut", "stopped", 1, LONG, on=("single",), name=f"{_way} a node's way to Redis")(partial(_cut, _way, "node"))


# Servers.


def _down(target: str, how: str, world: World, chance: random.Random) -> Iterator[Any]:
    server = getattr(world, target)
    (server.kill if how == "restart" else server.pause)()
    yield {}
    (server.start if how == "restart" else server.resume)()


for _target, _often in {"store": 2.0, "broker": 2.0, "backend": 0.5}.items():
    for _way, _longest in {"restart": 2, "hang": 7}.items():
        fault("server", _target, _often, (0, _longest), _target == "store", _on(_target, _way), f"{_way} {_target}")(
            partial(_down, _target, _way)
        )


def _full(target: str, world: World, chance: random.Random) -> Iterator[Any]:
    server = getattr(world, target)
    world.fill(server, True)
    yield {}
    world.fill(server, False)


for _target, _often in {"store": 2.0, "broker": 1.0, "backend": 0.5}.items():
    fault("full", _target, _often, (0, 4), _target == "store", name=f"fill {_target}")(partial(_full, _target))


@fault("alarm", "broker", 1, (0, 4), on=("rabbitmq",))
def fill_the_disk_of_rabbitmq(world: World, chance: random.Random) -> Iterator[Any]:
    """It says so, and reads nothing more from publishers."""
    world.broker.alarm(True, "disk")
    yield {}
    world.broker.alarm(False, "disk")


@fault("replicas", "store", 1, (0, 4), True)
def miss_the_replicas_of_redis(world: World, chance: random.Random) -> Iterator[Any]:
    """It refuses all writes, as a master without enough replicas does (min-replicas-to-write)."""
    for least in (3, 0):
        for server in world.several.servers if world.several else [world.store]:
            with server.client() as client:
                client.config_set("min-replicas-to-write", least)
        yield {}


@fault("full", "store", 1, (0, 2), True, ("single",))
def fill_the_disk_of_redis(world: World, chance: random.Random) -> Iterator[Any]:
    """It dies while it writes, so that its file may end with a part of a step: that may not grow beyond its size."""
    assert world.store.process
    size = max(path.stat().st_size for path in world.folder("store").rglob("*.aof"))
    psutil.Process(world.store.process.pid).rlimit(psutil.RLIMIT_FSIZE, (size, size))
    yield {}
    world.store.kill()
    world.start_store()


@fault("loss", "store")
def flush_functions(world: World, chance: random.Random) -> Iterator[Any]:
    with world.store.client() as client:
        client.function_flush("SYNC")
    yield {}


@fault("loss", "store", 2, (0, 2), True, ("single",))
def lose_the_last_writes_of_redis(world: World, chance: random.Random) -> Iterator[Any]:
    """One to three restarts; at one of them, its file is an older one, or has a torn end."""
    restarts = chance.randrange(1, 4)
    loss = chance.randrange(restarts)
    for number in range(restarts):
        if number:
            world.start_store()
            time.sleep(chance.uniform(0, 0.5))
        if number == loss:
            since = time.monotonic()
            world.keep_store()
        time.sleep(chance.uniform(0.2, 1))
        world.store.kill()
        if number == loss:
            world.put_back_store(chance if chance.random() < 0.5 else None)
    yield {"loses": time.monotonic() - since + 0.2}
    world.start_store()


@fault("loss", "store", 1, on=("single", "ruin"), halts=True)
def flush_redis(world: World, chance: random.Random) -> Iterator[Any]:
    with world.store.client() as client:
        client.flushdb()
    yield {"loses": 1e6}
    world.declare_quotas()


@fault("clock", "clock", 4, (2, 12), on=("clock",))
def set_the_clock_of_redis(world: World, chance: random.Random) -> Iterator[Any]:
    """Move the clock forward or back, and then back to its time."""
    world.set_clock(chance.choice((-20, -5, 5, 20)))
    yield {}
    world.set_clock(0)


@fault("clocks", "clocks", 4, on=("clocks",))
def set_the_clock_of_a_node_or_client(world: World, chance: random.Random) -> Iterator[Any]:
    """It jumps, forward or back. Only Redis' clock counts, so nobody may be late."""
    world.set_clock(chance.choice(OFFSETS), chance.choice(world.clocks))
    yield {}


@fault("loss", "store", 6, (0, 5), True, ("cluster",))
@fault("loss", "store", 6, (0, 5), True, ("sentinel",))
def fail_over(world: World, chance: random.Random) -> Iterator[Any]:
    """The master dies, hangs or is cut off; another takes over, without the writes that had not reached it. A returning
    master answers as one until Sentinel reconfigures it, or it hears of the cluster."""
    assert world.several
    master, since = world.store, time.monotonic()
    ways = [(master.pause, master.resume), (master.kill, master.start)]
    if world.sentinels:
        proxy = world.proxy("store")
        ways += [(proxy.cut, proxy.heal), (proxy.swallow, proxy.heal)]
    harm, mend = chance.choice(ways)
    harm()
    world.several.after(master)
    yield {"loses": time.monotonic() - since + 1.0}
    back = time.monotonic()
    mend()
    world.several.settle()
    yield {"loses": time.monotonic() - back}


@fault("split", "store", 3, (1, 6), True, ("sentinel",))
def leave_an_old_master_serving(world: World, chance: random.Random) -> Iterator[Any]:
    """A failover that the old master does not notice: its connections go on, and its writes are lost."""
    assert world.sentinels
    master, since = world.store, time.monotonic()
    with master.client() as client:
        client.execute_command("ACL SETUSER default -replicaof -slaveof")
        world.sentinels.give_up(master)
        yield {"loses": time.monotonic() - since + 1.0}
        client.execute_command("ACL SETUSER default +@all")
    world.sentinels.settle()
    yield {"loses": time.monotonic() - since + 1.0}


@fault("server", "store", 2, (0, 6), on=("sentinel",))
def kill_a_replica(world: World, chance: random.Random) -> Iterator[Any]:
    assert world.sentinels
    replica = chance.choice([one for one in world.sentinels.servers if world.sentinels.role(one) == "slave"])
    replica.kill()
    yield {}
    replica.start()


@fault("server", "store", 2, (0, 6), on=("cluster",))
def kill_the_replica_of_a_cluster(world: World, chance: random.Random) -> Iterator[Any]:
    assert world.cluster
    replica = world.cluster.replica()
    replica.kill()
    yield {}
    replica.start()
    world.cluster.settle()


@fault("server", "store", 2, (0, 6), True, on=("cluster",))
def kill_another_primary_of_a_cluster(world: World, chance: random.Random) -> Iterator[Any]:
    """It has no replica, so that the cluster serves nobody until it is back."""
    assert world.cluster
    other = world.cluster.servers[chance.choice((1, 2))]
    (harm, mend) = chance.choice(((other.kill, other.start), (other.pause, other.resume)))
    harm()
    yield {}
    mend()
    world.cluster.serve()


@fault("stop", "store", 1, (0, 9), on=("sentinel",))
def stop_a_sentinel(world: World, chance: random.Random) -> Iterator[Any]:
    """The two other members agree without it."""
    assert world.sentinels
    number = chance.randrange(3)
    world.sentinels.pause_sentinel(number)
    yield {}
    world.sentinels.resume_sentinel(number)


# Wake-ups.


@fault("wake", "store", 3, (2, 5))
def lose_wake_ups(world: World, chance: random.Random) -> Iterator[Any]:
    with world.robbed():
        yield {}


@fault("wake", "store", 3, (1, 4))
def delay_and_double_wake_ups(world: World, chance: random.Random) -> Iterator[Any]:
    with world.robbed() as taken:
        yield {}
    world.wake(2 * taken)


@fault("wake", "store", 1)
def send_rubbish(world: World, chance: random.Random) -> Iterator[Any]:
    world.wake([(name, rubbish) for name in world.wakes() for rubbish in RUBBISH])
    yield {}
