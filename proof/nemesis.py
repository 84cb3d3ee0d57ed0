"""The nemesis: it harms servers, processes, messages and clocks, as its seed says, and mends what it harmed.

A fault is a generator: it harms up to its `yield`, and mends behind it. `halts`: somebody may be late by more than a
lease. `loses`: the store may forget the last seconds; the fault yields how many. `on`: what of the world it needs.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from proof.witness import Witness

if TYPE_CHECKING:
    from proof.world import World

Act = Callable[["World", random.Random], Iterator[Any]]


@dataclass(frozen=True)
class Kind:
    """`target`: of one target only one thing is harmed at a time. `seconds`: for so long, at most."""

    name: str
    act: Act
    target: str
    often: int
    seconds: float
    halts: bool
    on: tuple[str, ...]


KINDS: list[Kind] = []


def fault(
    target: str, often: int = 2, seconds: float = 0.0, halts: bool = True, on: tuple[str, ...] = ()
) -> Callable[[Act], Act]:
    def listed(act: Act) -> Act:
        KINDS.append(Kind(act.__name__.replace("_", " "), act, target, often, seconds, halts, on))
        return act

    return listed


# Processes.


@fault("process", 6, halts=False)
def kill_a_pool_process(world: World, chance: random.Random) -> Iterator[Any]:
    chance.choice(world.worker(chance).children()).kill()
    yield


@fault("process", 3)
def kill_a_warden(world: World, chance: random.Random) -> Iterator[Any]:
    world.worker(chance).warden().kill()
    yield


@fault("process", 2)
def kill_errands(world: World, chance: random.Random) -> Iterator[Any]:
    world.worker(chance).warden().children()[0].kill()
    yield


@fault("process", 2, halts=False)
def kill_a_node(world: World, chance: random.Random) -> Iterator[Any]:
    world.worker(chance).end()
    yield
    world.join()


@fault("process", 2)
def kill_the_main_process_of_a_node(world: World, chance: random.Random) -> Iterator[Any]:
    worker = world.worker(chance)
    worker.kill()
    worker.process.wait()
    yield
    world.join()


@fault("process", 2)
def stop_a_node_at_once(world: World, chance: random.Random) -> Iterator[Any]:
    yield from _told(world, chance, signal.SIGQUIT)


@fault("process", 2)
def restart_a_node(world: World, chance: random.Random) -> Iterator[Any]:
    yield from _told(world, chance, signal.SIGTERM)


def _told(world: World, chance: random.Random, number: int) -> Iterator[Any]:
    world.worker(chance).kill(number)
    world.join()
    yield


@fault("stopped", 6, 9)
def stop_a_pool_process(world: World, chance: random.Random) -> Iterator[Any]:
    yield from _stopped([chance.choice(world.worker(chance).children())])


@fault("stopped", 2, 9)
def stop_a_warden(world: World, chance: random.Random) -> Iterator[Any]:
    yield from _stopped([world.worker(chance).warden()])


@fault("stopped", 2, 9)
def stop_a_whole_node(world: World, chance: random.Random) -> Iterator[Any]:
    main = psutil.Process(world.worker(chance).pid)
    yield from _stopped([main, *main.children(recursive=True)])


@fault("stopped", 2, 6)
def stop_a_beat(world: World, chance: random.Random) -> Iterator[Any]:
    yield from _stopped([psutil.Process(chance.choice(world.beats).pid)])


def _stopped(processes: list[psutil.Process]) -> Iterator[Any]:
    for process in processes:
        process.suspend()
    yield
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.resume()


@fault("beat", 3, 3, halts=False)
def kill_a_beat(world: World, chance: random.Random) -> Iterator[Any]:
    beat = world.beats.pop(chance.randrange(len(world.beats)))
    beat.kill()
    beat.wait()
    yield
    world.beat()


@fault("client", 3, 1, halts=False)
def kill_a_client(world: World, chance: random.Random) -> Iterator[Any]:
    name = chance.choice([*world.clients])
    process = world.clients[name]
    process.kill()
    process.wait()
    yield {"killed": [f"{name}/{process.pid}"]}
    world.client(name)


# The coordinator's Redis.


@fault("store", 3, 2)
def restart_redis(world: World, chance: random.Random) -> Iterator[Any]:
    world.store.kill()
    yield
    world.store.start()


@fault("store", 2, 7)
def hang_redis(world: World, chance: random.Random) -> Iterator[Any]:
    world.store.pause()
    yield
    world.store.resume()


@fault("store", 2, 5, on=("single",))
def cut_redis_off(world: World, chance: random.Random) -> Iterator[Any]:
    world.proxies["store"].cut()
    yield
    world.proxies["store"].heal()


@fault("store", 2, 5, on=("single",))
def swallow_what_goes_to_redis(world: World, chance: random.Random) -> Iterator[Any]:
    world.proxies["store"].swallow()
    yield
    world.proxies["store"].heal()


@fault("store", 2, 5, on=("single",))
def hold_what_goes_to_redis(world: World, chance: random.Random) -> Iterator[Any]:
    world.proxies["store"].hold()
    yield
    world.proxies["store"].heal()


@fault("store", 2, 5, on=("single",))
def slow_redis(world: World, chance: random.Random) -> Iterator[Any]:
    world.proxies["store"].delay = chance.uniform(0.1, 1.0)
    yield
    world.proxies["store"].delay = 0.0


@fault("store", 2, 4)
def fill_redis(world: World, chance: random.Random) -> Iterator[Any]:
    with world.store.client() as client:
        client.config_set("maxmemory", 1)
        yield
        client.config_set("maxmemory", 0)


@fault("store", 1, 2, on=("single",))
def fill_the_disk_of_redis(world: World, chance: random.Random) -> Iterator[Any]:
    """It dies as it writes: its append-only file may have grown to its present size and no further."""
    assert world.store.process
    size = max(path.stat().st_size for path in world.folder("store").rglob("*.aof"))
    psutil.Process(world.store.process.pid).rlimit(psutil.RLIMIT_FSIZE, (size, size))
    yield
    world.store.kill()
    world.store.start()


@fault("store", 2, halts=False)
def flush_functions(world: World, chance: random.Random) -> Iterator[Any]:
    with world.store.client() as client:
        client.function_flush("SYNC")
    yield


@fault("store", 2, 2, on=("single",))
def lose_the_last_writes_of_redis(world: World, chance: random.Random) -> Iterator[Any]:
    """Two or three restarts, of which one is with an older append-only file."""
    since, restarts = time.monotonic(), chance.randrange(1, 3)
    world.keep_store()
    time.sleep(chance.uniform(0.2, 1))
    world.store.kill()
    lost = time.monotonic() - since + 0.5
    world.put_back_store()
    for _ in range(restarts):
        world.store.start()
        time.sleep(chance.uniform(0, 0.5))
        world.store.kill()
    yield {"loses": lost + 1.5}
    world.store.start()


@fault("store", 1, on=("single", "ruin"))
def flush_redis(world: World, chance: random.Random) -> Iterator[Any]:
    with world.store.client() as client:
        client.flushdb()
    yield {"loses": 1e6}


@fault("store", 6, 5, on=("sentinel",))
def fail_over(world: World, chance: random.Random) -> Iterator[Any]:
    """The master dies or hangs, another takes over, and lacks what had not reached it."""
    assert world.sentinels
    master, hangs = world.store, chance.random() < 0.5
    (master.pause if hangs else master.kill)()
    world.sentinels.after(master)
    yield {"loses": 5.0}
    (master.resume if hangs else master.start)()
    world.sentinels.settle()


# The broker, and the result backend.


@fault("broker", 2, 3)
def restart_the_broker(world: World, chance: random.Random) -> Iterator[Any]:
    world.broker.kill()
    yield
    world.broker.start()


@fault("broker", 2, 7)
def hang_the_broker(world: World, chance: random.Random) -> Iterator[Any]:
    world.broker.pause()
    yield
    world.broker.resume()


@fault("broker", 1, 5)
def fill_the_broker(world: World, chance: random.Random) -> Iterator[Any]:
    world.fill_broker(True)
    yield
    world.fill_broker(False)


@fault("broker", 2, 5, on=("redis",))
def swallow_what_goes_to_the_broker(world: World, chance: random.Random) -> Iterator[Any]:
    world.proxies["broker"].swallow()
    yield
    world.proxies["broker"].heal()


@fault("broker", 3, halts=False, on=("redis",))
def lose_messages(world: World, chance: random.Random) -> Iterator[Any]:
    """All doorbells that wait. Other messages are ordinary tasks, which nobody promises."""
    world.doorbells(take=True)
    yield


@fault("broker", 3, 3, halts=False, on=("redis",))
def delay_and_double_messages(world: World, chance: random.Random) -> Iterator[Any]:
    taken = world.doorbells(take=True)
    yield
    world.put_doorbells(2 * taken)


@fault("broker", 1, halts=False, on=("redis",))
def send_rubbish(world: World, chance: random.Random) -> Iterator[Any]:
    world.put_doorbells([(queue, b"{rubbish") for queue in world.queues()])
    yield


@fault("backend", 2, 5)
def cut_the_backend_off(world: World, chance: random.Random) -> Iterator[Any]:
    world.proxies["backend"].cut()
    yield
    world.proxies["backend"].heal()


class Nemesis:
    """It may do several things at once, to several targets."""

    def __init__(self, world: World, witness: Witness, seed: int) -> None:
        self._world, self._witness = world, witness
        self._chance = random.Random(f"{seed} nemesis")
        self._open: list[tuple[float, int, Kind, Iterator[Any]]] = []
        self._count = 0

    def rage(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self._chance.uniform(0.2, 1.2))
            self._mend(time.monotonic())
            busy = {kind.target for _, _, kind, _ in self._open}
            fit = [kind for kind in KINDS if kind.target not in busy and {*kind.on} <= self._world.has]
            (kind,) = self._chance.choices(fit, [kind.often for kind in fit])
            self._begin(kind)
        self._mend(float("inf"))

    def _begin(self, kind: Kind) -> None:
        number = self._count = self._count + 1
        act = kind.act(self._world, self._chance)
        seconds = self._chance.uniform(0, kind.seconds)
        drops = kind.halts and kind.target in ("broker", "backend")
        self._witness.note("invoke", "fault", number=number, name=kind.name, halts=kind.halts, drops=drops)
        with suppress(psutil.Error, StopIteration, IndexError):  # who was to be harmed is gone already
            if about := next(act):
                self._witness.note("info", "fault", number=number, **about)
        self._open.append((time.monotonic() + seconds, number, kind, act))

    def _mend(self, now: float) -> None:
        for one in sorted((one for one in self._open if one[0] <= now), key=lambda one: one[:2]):
            self._open.remove(one)
            next(one[3], None)
            self._witness.note("ok", "fault", number=one[1], name=one[2].name)
