"""One run: a world, its load, a nemesis; then the history and the verdict, which a seed makes again."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from coordinator import StoreUnavailable, UnknownJob
from coordinator.jobs.record import TERMINAL
from proof.checkers import Wrong, judge
from proof.history import History
from proof.nemesis import Nemesis
from proof.witness import Witness
from proof.world import TICKS, World
from tests.harness.leftovers import leftovers
from tests.harness.waiting import wait_until

T = TypeVar("T")
REQUESTS, PAUSE = 120, 0.15  # of a client, and s between two
RAGE = 30.0  # s
PATIENCE = 60.0  # s after the last fault until all must be over


@dataclass(frozen=True)
class Verdict:
    seed: int
    history: History
    wrong: dict[str, list[Wrong]]
    seconds: float

    @property
    def holds(self) -> bool:
        return not any(self.wrong.values())

    def line(self) -> str:
        """One of the list of seeds: seed, commit, what the world had, faults, jobs, runs, verdict, checksum."""
        history = self.history
        red = ", ".join(f"{name} {len(found)}" for name, found in self.wrong.items() if found)
        counts = (len(history.faults), len({*_submitted(history)}), len(history.runs))
        about = (str(self.seed), history.about["commit"], "+".join(history.about["world"]), *map(str, counts))
        return " | ".join((*about, red or "holds", history.checksum))


def run(seed: int, folder: Path, rage: float = RAGE) -> Verdict:
    """Play a seed. Its history lies in `folder`/history.json."""
    began = time.monotonic()
    with World(folder, seed, round(REQUESTS * rage / RAGE), PAUSE) as world:
        witness = Witness(world.log.url(3), "proof", "nemesis")
        world.begin()
        Nemesis(world, witness, seed).rage(rage)
        _settle(world, witness)
        about = {
            "seed": seed, "commit": _commit(), "world": sorted(world.has), "limits": world.limits, "ticks": TICKS,
            "faults": dict(Counter(one.name for one in History.heard(witness.lines(), {}).faults)),
        }  # fmt: skip
        history = History.heard(witness.lines(), about)
    history.save(folder / "history.json")
    return Verdict(seed, history, judge(history), time.monotonic() - began)


def _settle(world: World, witness: Witness) -> None:
    """Wait until every client has said all, and every job is over; then write down how each ended, and what is left."""

    def finished() -> bool:
        for name, process in [*world.clients.items()]:
            if process.poll():  # it was ended by what it met
                raise AssertionError(f"{name} ended with {process.poll()}:\n{world.logs()[-3000:]}")
        return all(process.poll() == 0 for process in world.clients.values())

    wait_until(finished, 4 * PATIENCE, world.logs)
    world.end_beats()
    for key in world.limits:  # a lane with a limit of its own is shown for ever
        _insist(partial(world.coordinator.set_limit, key, 1))
    submitted = _submitted(History.heard(witness.lines(), {}))
    open_jobs = {*submitted}

    def over() -> bool:
        open_jobs.difference_update([job for job in open_jobs if _end(world, job)["state"] in (*TERMINAL, "unknown")])
        return not open_jobs and not _insist(world.coordinator.lanes)

    with suppress(AssertionError):  # the checkers say so
        wait_until(over, PATIENCE)
    for job in submitted:
        witness.note("info", "job", job=job, **_end(world, job))
    store = world.coordinator.store
    with suppress(AssertionError):
        wait_until(lambda: not leftovers(store), 10)
    lanes = [lane.key for lane in _insist(world.coordinator.lanes)]
    witness.note("info", "left", keys=leftovers(store), lanes=lanes, open=sorted(open_jobs))


def _submitted(history: History) -> list[str]:
    return list({str(event.value["job"]): None for event in history.of("submit", "ok")})


def _end(world: World, job: str) -> dict[str, object]:
    try:
        found = _insist(lambda: world.coordinator.job(job))
    except UnknownJob:
        return {"state": "unknown"}
    return {"state": found.state, "attempts": found.attempt, "losses": found.losses, "error": found.error}


def _insist(ask: Callable[[], T]) -> T:
    """Until the store has answered: connections that a fault left half open fail first."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except StoreUnavailable:
            if time.monotonic() > until:
                raise


def _commit() -> str:
    found = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"
