"""One run: a world, its load, a nemesis; then the history and the verdict.

A seed repeats the draws, not the course of the run, which depends on the machine.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy.exc import DBAPIError

from coordinator import StoreUnavailable, UnknownJob
from coordinator.core.jobs.record import TERMINAL
from coordinator.scheduler.backfill import quota_of
from proof import LEASE, PAST, PAST_AT_ONCE, QUOTAS
from proof.checkers import NOTHING, Violation, judge
from proof.documents import final
from proof.history import History
from proof.linear.judging import counted
from proof.nemesis import Nemesis
from proof.orders import relayed, rows
from proof.steps.conformance import PLAYED, Held, hold
from proof.steps.recording import Recording, recorded
from proof.witness import Witness
from proof.world import INSTANTS, TICKS, World
from tasks.batches import Items
from tasks.settings import Settings
from tests.harness.leftovers import leftovers
from tests.harness.waiting import wait_until

LONGEST_FAILOVER = 4.0  # s, from the last write of the old master, and until it is none any more
EVENT = "Checked"  # that the component adds to each item
T = TypeVar("T")
REQUESTS, PAUSE = 120, 0.15  # of a client, and s between two
RAGE, LEAST = 30.0, 20  # s, and faults
LOOK = 2.0  # s, between two looks at all keys
STEPS = "steps.json.xz"
PATIENCE = 60.0  # s without progress after which open jobs count as stuck


@dataclass(frozen=True)
class Verdict:
    seed: int
    history: History
    wrong: dict[str, list[Violation]]
    held: list[Held]
    seconds: float

    @property
    def holds(self) -> bool:
        return not any(self.wrong.values())

    def line(self) -> str:
        """A line of the list of seeds: seed, commit, parts of the world, faults by way, jobs, runs, steps,
        operations of linearizable objects, late writes, seconds, verdict, checksum."""
        history = self.history
        red = ", ".join(f"{name} {len(found)}" for name, found in self.wrong.items() if found)
        ways = Counter(fault.way for fault in history.faults)
        counts = {**dict(sorted(ways.items())), "jobs": len(_submitted(history)), "runs": len(history.runs)}
        counts["steps"], counts["unheld"] = (
            sum(one.steps for one in self.held),
            sum(one.unknown.total() for one in self.held),
        )
        counts["decided"], counts["undecided"] = counted(history)
        counts["refused"] = sum(event.value["outcome"] == "refused" for event in history.of("write"))
        about = str(self.seed), history.about["commit"], "+".join(history.about["world"])
        what = " ".join(f"{name} {number}" for name, number in counts.items())
        return " | ".join((*about, what, f"{self.seconds:.0f} s", red or NOTHING, history.checksum))


def run(seed: int, folder: Path) -> Verdict:
    """Play a seed. Its history goes to `folder`/history.json."""
    began = time.monotonic()
    recording = Recording()
    with recorded(), World(folder, seed, REQUESTS, PAUSE) as world:
        witness, watch = world.witness, _Watch(world, recording)
        deaths, orders = _Notes(partial(_note_deaths, world)), _Notes(_Relayed(world))
        with _Pulse(witness), deaths, orders, watch:
            world.begin()
            Nemesis(world, witness, seed).rage(RAGE, LEAST)
            _settle(world, witness)
        about = {
            "seed": seed, "commit": _commit(), "world": sorted(world.has), "ticks": TICKS,
            "quotas": QUOTAS | {quota_of(PAST): {"units": PAST_AT_ONCE}}, "backfills": {PAST: INSTANTS},
            "lease": LEASE, "faults": dict(Counter(one.name for one in History.from_lines(witness.lines(), {}).faults)),
        }  # fmt: skip
        history = History.from_lines(witness.lines(), about)
        recording.read_logs(world.logs_of_store())
    history.save(folder / "history.json")
    recording.save(folder / STEPS)
    wrong = judge(history, must_apply=True)
    held = [hold(recording, prefix) for prefix in PLAYED]
    wrong["as_the_model"] = [Violation(-1, text) for one in held for text in one.wrong]
    return Verdict(seed, history, wrong, held, time.monotonic() - began)


class _Watch(threading.Thread):
    """Records all keys every LOOK seconds, and once more at the end."""

    def __init__(self, world: World, recording: Recording) -> None:
        super().__init__(daemon=True)
        self._world, self._recording, self._over = world, recording, threading.Event()

    def run(self) -> None:
        while not self._over.wait(LOOK):
            self._look()

    def _look(self) -> None:
        with suppress(redis.RedisError, OSError, AssertionError):  # of a server with a fault now
            port = self._world.store.port
            with redis.Redis(port=port, socket_timeout=1, retry=Retry(NoBackoff(), 0)) as client:
                for prefix in PLAYED:
                    self._recording.look(client, prefix)

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
        self._look()


class _Pulse(threading.Thread):
    """Notes when the machine hangs, or is too busy for any progress: processes may be late then."""

    def __init__(self, witness: Witness) -> None:
        super().__init__(daemon=True)
        self._witness, self._over = witness, threading.Event()

    def run(self) -> None:
        number, before = 0, time.monotonic()
        while not self._over.wait(0.2):
            took, before = time.monotonic() - before, time.monotonic()
            if took > LEASE / 3:
                number -= 1
                for type in ("invoke", "ok"):
                    self._witness.note(
                        type, "fault", number=number, name="the machine stood still", way="stall", halts=True, took=took
                    )

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


class _Notes(threading.Thread):
    """Calls `note` five times a second, and once more at the end."""

    def __init__(self, note: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._note, self._over = note, threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.2):
            self._note()

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
        self._note()


def _note_deaths(world: World) -> None:
    """Note which nodes are taken for dead, as others say; not when they say it, since their clocks may be wrong."""
    for node in world.deaths():
        world.witness.note("info", "dead", node=node, at=time.time_ns() // 1000)


class _Relayed:
    """Notes the orders whose jobs a relay has submitted since the last look: from then on Redis may lose them."""

    def __init__(self, world: World) -> None:
        self._world, self._known = world, set[str]()

    def __call__(self) -> None:
        if "outbox" not in self._world.has:
            return
        with suppress(DBAPIError):  # the database is away
            for job in sorted(relayed(self._world.engine) - self._known):
                self._known.add(job)
                self._world.witness.note("info", "relayed", job=job)


def _settle(world: World, witness: Witness) -> None:
    """Wait until all clients and jobs have ended; then note how each ended, and what is left."""

    def saying() -> int:
        ended = [process.poll() for process in world.clients.values()]
        return -1 if None not in ended else sum(1 for line in witness.lines() if '"f":"asked"' in line)

    _served(world, saying)
    ends = {name: process.poll() for name, process in world.clients.items()}
    stuck = [f"{name}: {'stuck' if status is None else status}" for name, status in ends.items() if status != 0]
    stuck += world.swarm.ended() if world.swarm else []
    with suppress(AssertionError):  # the checkers say so
        _note_loads(world, witness)
    _served(world, partial(_to_fill, world))
    world.end_beats()
    history = History.from_lines(witness.lines(), {})
    for event in history.of("set", "invoke"):  # a store that lost its last writes has forgotten some
        name = str(event.value["event"])
        _retry(partial(world.coordinator.event(name).set, name.partition("/")[2]))
    submitted = _submitted(history)
    open_jobs = {*submitted}

    def left() -> int:
        open_jobs.difference_update([job for job in open_jobs if _end(world, job)["state"] in (*TERMINAL, "unknown")])
        waits = len(_retry(world.coordinator.sorters))  # first: jobs that are flushed meanwhile are in a lane then
        return len(open_jobs) + waits + len(_lanes(world)) or -1

    _served(world, left)
    for name in (*QUOTAS, quota_of(PAST)):  # what is declared is kept for ever
        _retry(partial(world.coordinator.drop_quota, name))
    _note_failovers(world, witness)
    for job in submitted:
        witness.note("info", "job", job=job, **_end(world, job))
    store = world.coordinator.store
    with suppress(AssertionError):
        wait_until(lambda: not leftovers(store), 10)
    unsent, lanes = rows(world.engine) if "outbox" in world.has else [], _lanes(world)
    about = {"keys": leftovers(store), "lanes": lanes, "open": sorted(open_jobs), "clients": stuck, "rows": unsent}
    witness.note("info", "left", **about)


def _lanes(world: World) -> list[str]:
    """Those that are busy, without the one that the relay of an outbox holds for as long as it works."""
    return [lane.key for lane in _retry(world.coordinator.lanes) if not lane.key.startswith("coordinator/outbox/")]


def _to_fill(world: World) -> int:
    """How many instants are still to run, -1: none."""
    found = _retry(world.backfill)
    return found.to_come + found.in_line or -1


def _note_failovers(world: World, witness: Witness) -> None:
    """Note the failovers that the sentinels made without a fault of the nemesis."""
    wanted = [one for one in History.from_lines(witness.lines(), {}).faults if one.lost]
    for number, at in enumerate(world.failovers()):
        if any(one.since <= at <= one.until for one in wanted):
            continue
        about = {"number": f"failover {number}", "name": "failover", "way": "loss", "halts": True}
        witness.note("invoke", "fault", at=at, loses=LONGEST_FAILOVER, **about)
        witness.note("ok", "fault", at=at + round(LONGEST_FAILOVER * 1e6), loses=LONGEST_FAILOVER, **about)


def _note_loads(world: World, witness: Witness) -> None:
    """Note the final items and documents, once the relays of an outbox have submitted all."""
    if "outbox" in world.has:
        _served(world, lambda: len(rows(world.engine)) or -1)
    if world.members:
        for about in final(world.members):
            witness.note("info", "document", **about)
    if "items" in world.has:
        store = Items(Settings.model_validate({"data_dir": world.fleet.environ["TASKS_DATA_DIR"]}))
        items = [str(event.value["item"]) for event in History.from_lines(witness.lines(), {}).of("deliver")]

        def unchecked() -> int:
            return sum(not any(one.type == EVENT for one in store.events(item)) for item in items) or -1

        _served(world, unchecked)
        for item in items:
            for one in store.events(item):
                witness.note("info", "event", item=item, kind=one.type, success=one.success, fence=one.fence)
        store.engine.dispose()


def _served(world: World, measure: Callable[[], int]) -> None:
    """Wait patiently, with a node in the place of each that ends, as one with threads does where a body kills it."""

    def measured() -> int:
        world.refill()
        return measure()

    patiently(measured)


def patiently(measure: Callable[[], int], patience: float = PATIENCE) -> bool:
    """Wait until `measure` returns -1. False if it did not change for `patience`: a busy machine is not stuck."""
    last, since = None, time.monotonic()
    while (now := measure()) >= 0:
        if now != last:
            last, since = now, time.monotonic()
        if time.monotonic() > since + patience:
            return False
        time.sleep(0.2)
    return True


def _submitted(history: History) -> list[str]:
    """The jobs, and the calls that jobs collected."""
    told = (event for f in ("submit", "call") for event in history.of(f, "ok"))
    return list({str(event.value["job"]): None for event in told})


def _end(world: World, job: str) -> dict[str, object]:
    try:
        ended = _retry(lambda: world.coordinator.job(job))
    except UnknownJob:
        return {"state": "unknown"}
    about = {"state": ended.state, "attempts": ended.attempt, "losses": ended.losses, "error": ended.error}
    return {**about, "fault": ended.fault}


def _retry(call: Callable[[], T]) -> T:
    """Repeat the call until the store answers: connections that a fault left half open fail first."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return call()
        except StoreUnavailable:
            if time.monotonic() > until:
                raise


def _commit() -> str:
    """The commit of the code, `-dirty` after changes other than of the list of seeds."""
    argv = "git", "-C", str(Path(__file__).parent)
    commit = subprocess.run([*argv, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    status = [*argv, "status", "--porcelain", "--", ":/", ":!seeds.txt", ":!red"]
    dirty = subprocess.run(status, capture_output=True, text=True, check=False).stdout.strip()
    return (commit.stdout.strip() or "unknown") + "-dirty" * bool(dirty)
