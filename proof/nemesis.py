"""The nemesis injects faults into servers, processes, wake-ups and clocks, drawn from its seed, and ends them."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import psutil

from proof.harms import KINDS, Kind, at_work, stop_a_pool_process
from proof.witness import Witness
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from proof.world import World


class Nemesis:
    """Injects several faults at a time, one for each target."""

    def __init__(self, world: World, witness: Witness, seed: int, kinds: list[Kind] = KINDS) -> None:
        self._world, self._witness = world, witness
        self._chance = random.Random(f"{seed} nemesis")
        self._kinds = [kind for kind in kinds if kind.on <= world.has]
        self._open: list[tuple[float, int, Kind, Iterator[Any]]] = []
        self._count = 0

    def rage(self, seconds: float, least: int = 0) -> None:
        """Inject faults for `seconds`; up to twice as long if a busy machine had fewer than `least`."""
        self._stop_one_in_peace()
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end or (self._count < least and now < end + seconds):
            time.sleep(self._chance.uniform(0.2, 1.2))
            self._mend(time.monotonic())
            busy = {kind.target for _, _, kind, _ in self._open}
            fit = [kind for kind in self._kinds if kind.target not in busy]
            (kind,) = self._chance.choices(fit, [kind.often for kind in fit])
            self._begin(kind)
        self._mend(float("inf"))

    def _stop_one_in_peace(self) -> None:
        """Before all other faults, let a lease end while nothing else is wrong."""
        wait_until(lambda: at_work(self._world), 30)
        (stop,) = [kind for kind in self._kinds if kind.act is stop_a_pool_process]
        self._begin(stop)
        for until, *_ in self._open:
            time.sleep(max(0.0, until - time.monotonic()))
        self._mend(time.monotonic())

    def _begin(self, kind: Kind) -> None:
        number = self._count = self._count + 1
        act = kind.act(self._world, self._chance)
        seconds = self._chance.uniform(*kind.seconds)
        drops = kind.target in ("broker", "backend")
        about = {"number": number, "name": kind.name}
        self._witness.note("invoke", "fault", way=kind.way, halts=kind.halts, drops=drops, **about)
        try:
            harmed = next(act)
        except (psutil.Error, StopIteration, IndexError) as error:  # the victim has ended already
            self._witness.note("fail", "fault", error=repr(error), **about)
        else:
            self._witness.note("info", "fault", **about, **harmed)
            self._open.append((time.monotonic() + seconds, number, kind, act))

    def _mend(self, now: float) -> None:
        for one in sorted((one for one in self._open if one[0] <= now), key=lambda one: one[:2]):
            self._open.remove(one)
            mended = next(one[3], None) or {}
            self._witness.note("ok", "fault", number=one[1], name=one[2].name, **mended)
