"""The peers of README's table under the same faults, load and checkers as the coordinator, and what each gets wrong."""

from __future__ import annotations

import importlib
import itertools
import random
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import click
from celery_once import AlreadyQueued
from kombu.exceptions import OperationalError

from coordinator import StoreUnavailable
from proof import LANES, LEASE
from proof.checkers import Checker, at_least_once, effects_once, in_order, one_at_a_time
from proof.harms import KINDS
from proof.history import History
from proof.nemesis import Nemesis
from proof.trial import patiently
from proof.world import NODES, World
from tests.harness.fleet import ALONE, Worker

FAULTS = ("kill a pool process", "stop a pool process", "kill a node", "restart broker")
JOBS, PAUSE = 150, 0.15  # of a seed, and s between two
SHORT, LONG = (0, 0.25), (1.2 * LEASE, 2.5 * LEASE)  # s that a body takes
PATIENCE = 30.0  # s without progress after which what is open is stuck
OURS = "celery-coordinator"
NAMES = {
    "plain": "Celery, acks_late",
    "locked": "redis-py's lock",
    "once": "celery-once 3.0",
    "singleton": "celery-singleton 0.3",
    OURS: OURS,
}
WRONG = ("lost", "doubled", "overlapped", "reordered", "stuck")


class PeerWorld(World):
    """One Redis, a Redis as the broker, and nodes of the peers' app, or of ours."""

    def __init__(self, folder: Path, seed: int, peer: str) -> None:
        super().__init__(folder, seed, 0, 0)
        self.has = {"single", "redis"}
        self.peer = peer

    def begin(self) -> None:
        for _ in range(NODES):
            self.join(ready=self.peer == OURS)
        sys.modules.pop("proof.peer_shop", None)  # it was imported with another world's servers
        self.peers: Any = importlib.import_module("proof.peer_shop")

    def join(self, ready: bool = False) -> Worker:
        if self.peer == OURS:
            return super().join(ready)
        self._born += 1
        return self.fleet.worker(f"n{self._born}", 2, *ALONE, app="peer_shop", ready=False)

    def ask(self, job: str, key: str, seconds: float) -> bool:
        """True once the job is accepted. False: it is refused, or nobody answers."""
        try:
            if self.peer == OURS:
                self.coordinator.submit(key, self.shop.work.s(seconds), job_id=job)
                return True
            call = getattr(self.peers, self.peer).apply_async((job, key, seconds), task_id=job)
            return bool(call.id == job)  # celery-singleton gives the call before it
        except (AlreadyQueued, OperationalError, StoreUnavailable):
            return False

    def state(self, job: str, done: set[str]) -> str:
        """Of a job that was accepted."""
        if self.peer == OURS:
            return str(self.coordinator.job(job).state)
        if job in done:
            return "succeeded"
        with self.broker.client() as client:
            waits = [text for name in client.scan_iter(_type="LIST") for text in client.lrange(name, 0, -1)]
            waits += client.hvals("unacked")
        return "waiting" if any(job in text for text in waits) else "unknown"


class Client(threading.Thread):
    """It asks for jobs, and again for those that were refused, until all are accepted or `stop` is set."""

    def __init__(self, world: PeerWorld, seed: int) -> None:
        super().__init__(daemon=True)
        self._world, self._chance = world, random.Random(f"{seed} load")
        self.open: dict[str, tuple[str, float]] = {}
        self.accepted: list[str] = []
        self.refused = 0
        self.stop = threading.Event()

    def run(self) -> None:
        note, chance = self._world.witness.note, self._chance
        for number in itertools.count():
            if number < JOBS:
                job, key = f"{self._world.peer}-{number}", f"k{chance.randrange(LANES)}"
                self.open[job] = key, chance.uniform(*(LONG if chance.random() < 0.05 else SHORT))
                note("invoke", "submit", job=job, keys=[key], kind="plain")
            for job, (key, seconds) in [*self.open.items()]:
                if self._world.ask(job, key, seconds):
                    note("ok", "submit", job=job, keys=[key], kind="plain")
                    self.accepted.append(job)
                    del self.open[job]
                else:
                    self.refused += 1
            if self.stop.wait(PAUSE) or (number >= JOBS and not self.open):
                return

    def progress(self) -> int:
        """-1 once all jobs have run."""
        done = len(_done(self._world))
        return -1 if done == JOBS else done + len(self.accepted)


def _done(world: PeerWorld) -> set[str]:
    runs = History.from_lines(world.witness.lines(), {}).runs
    return {run.job for run in runs if run.ended and run.ended.type == "ok"}


def run(peer: str, seed: int, folder: Path) -> History:
    """Its jobs, and how they ended, while the nemesis rages."""
    with PeerWorld(folder, seed, peer) as world:
        world.begin()
        client = Client(world, seed)
        client.start()
        faults = [kind for kind in KINDS if kind.name in FAULTS]
        Nemesis(world, world.witness, seed, faults).rage(JOBS * PAUSE)
        patiently(client.progress, PATIENCE)  # what is open then is stuck
        client.stop.set()
        client.join()
        done = _done(world)
        for job in client.accepted:
            world.witness.note("info", "job", job=job, state=world.state(job, done))
        about = {"peer": peer, "seed": seed, "lease": LEASE, "refused": client.refused, "never": len(client.open)}
        return History.from_lines(world.witness.lines(), about)


def wrongs(history: History) -> Counter[str]:
    """How many jobs were lost, and so on. `stuck`: they wait still, or were never accepted."""

    def jobs(checker: Checker) -> list[str]:
        return [history.events[wrong.event].value["job"] for wrong in checker(history) if wrong and wrong.event >= 0]

    states = {str(event.value["job"]): str(event.value["state"]) for event in history.of("job")}
    unended = [states[job] for job in jobs(at_least_once)]
    twice = [wrong for wrong in effects_once(history) if wrong and "times" in wrong.text]
    return Counter(
        lost=unended.count("unknown"),
        doubled=len(twice),
        overlapped=len({*jobs(one_at_a_time)}),
        reordered=len({*jobs(in_order)}),
        stuck=len(unended) - unended.count("unknown") + history.about["never"],
        refused=history.about["refused"],
        faults=len(history.faults),
    )


@click.command("peers")
@click.option("--seeds", default=1, show_default=True, help="So many of each.")
@click.option("--first", default=1, show_default=True, help="The first seed.")
@click.option("--only", type=click.Choice([*NAMES]), multiple=True, help="Not all of them.")
def peers(seeds: int, first: int, only: tuple[str, ...]) -> None:
    """Play the same load and faults with Celery alone, with the locks of README's table, and with ours.

    Each row: what went wrong with 1,000 jobs. Status 1 where something did with ours.
    """
    click.echo(f"| | jobs | faults | {' | '.join(WRONG)} |")
    click.echo(f"|---|{'---|' * (len(WRONG) + 2)}")
    ours: Counter[str] = Counter()
    for peer in only or NAMES:
        found: Counter[str] = Counter()
        for seed in range(first, first + seeds):
            with tempfile.TemporaryDirectory(prefix=f"peers-{seed}-") as folder:
                found += wrongs(run(peer, seed, Path(folder)))
        figures = " | ".join(f"{1000 * found[what] / (seeds * JOBS):.0f}" for what in WRONG)
        click.echo(f"| {NAMES[peer]} | {seeds * JOBS} | {found['faults']} | {figures} |")
        ours = found if peer == OURS else ours
    raise SystemExit(any(ours[what] for what in WRONG))
