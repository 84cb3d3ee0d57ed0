"""A client of the laboratory: `python -m proof.client NAME SEED NUMBER PAUSE`.

It asks for so many things, drawn from its seed: jobs of every kind, locks, grabs, orders of a sorter. What was not
answered it asks again, under the same id, also where another process had begun it: so it may be killed.
"""

import os
import random
import sys
import time
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from celery import chain

from coordinator import LeaseLost, Locked, StoreRefused, StoreUnavailable
from coordinator.jobs.options import SubmitOptions
from proof import IDLE, LANES, LEASE, WIDE
from proof.shop import cell_of, coordinator, die, keyed, parts, undo, work
from proof.witness import Witness

AGAIN: SubmitOptions = {"max_attempts": 1000, "retry_delay": 0.5, "time_limit": 15}
KINDS = {
    "plain": 30, "wide": 10, "pair": 10, "chain": 8, "parts": 5, "fails": 5, "retries": 5, "dies": 1, "cancelled": 5,
    "keyed": 8, "lock": 8, "grab": 10, "orders": 5,
}  # fmt: skip
OF_WORLD = {"item": ("PROOF_ITEMS", 10), "update": ("PROOF_DOCUMENTS", 30), "read": ("PROOF_DOCUMENTS", 15)}
KINDS |= {kind: often for kind, (variable, often) in OF_WORLD.items() if os.environ.get(variable)}


def lasting(luck: float, most: float = 0.95) -> float:
    """How long (s) a body takes: above `most` longer than a lease, so that it lives by being renewed."""
    return LEASE * (1.2 + 1.3 * (luck - most) / (1 - most)) if luck > most else luck * 0.4


class Client:
    def __init__(self, name: str, seed: int, number: int, pause: float) -> None:
        self.name, self.number, self.pause = name, number, pause
        self.chance = random.Random(f"{seed} {name}")
        self.witness = Witness.here(name)

    def run(self, done: int) -> None:
        """Go on behind the first `done` requests; the draws before are made all the same, so that the rest is alike."""
        for number in range(self.number):
            (kind,) = self.chance.choices([*KINDS], [*KINDS.values()])
            draw = self.chance.randrange(LANES), self.chance.randrange(1, LANES), self.chance.random()
            pause = self.chance.uniform(0, 2 * self.pause)
            if number >= done:
                getattr(self, f"ask_{kind}", self.submit)(f"{self.name}-{number}", kind, *draw)
                self.witness.note("info", "asked", client=self.name, number=number)
                time.sleep(pause)
        self.witness.note("info", "finished", client=self.name)

    def submit(self, job: str, kind: str, lane: int, other: int, luck: float) -> None:
        seconds, key = lasting(luck), f"k{lane}"
        keys = {"wide": [f"wide{lane % WIDE}"], "pair": [key, f"k{(lane + other) % LANES}"]}.get(kind, [key])
        options: SubmitOptions = {"job_id": job}
        signature: Any = work.s(seconds)
        steps = [0]
        if kind == "chain":
            signature, steps = chain(work.si(seconds / 2), work.si(seconds / 2, 1)), [0, 1]
        elif kind == "parts":
            signature, options = parts.s(seconds), {**options, **AGAIN}
        elif kind == "fails":
            signature, options = work.s(seconds, fail=True), {**options, "rollback": undo.si()}
        elif kind == "retries":
            signature, options = work.s(seconds, until=2), {**options, "max_attempts": 1000, "retry_delay": 0.2}
        elif kind == "dies":
            signature, options = die.s(), {**options, "max_losses": 1}
        effects = [[cell_of(one, job, kind == "wide"), f"{job} {step}"] for one in keys for step in steps]
        self._ask(lambda: coordinator.submit(keys, signature, **options).outcome, job, kind, keys, effects)
        if kind == "cancelled":
            self._insist(lambda: coordinator.cancel(job))

    def ask_keyed(self, job: str, kind: str, lane: int, other: int, luck: float) -> None:
        key = f"keyed/{lane}"
        ask = keyed.s(lane, lasting(luck)).set(task_id=job)
        self._ask(lambda: ask.apply_async().id, job, kind, [key], [[key, f"{job} 0"]])

    def ask_orders(self, job: str, kind: str, lane: int, other: int, luck: float) -> None:
        """Three at once, in an order that is not theirs."""
        sorter = coordinator.sorter("orders", IDLE)
        for letter in random.Random(job).sample("abc", 3):
            order = f"{letter}-{job}"
            self.witness.note("invoke", "add", sorter="orders", order=order)
            self._insist(partial(sorter.add, order, "sorted", work.s(0.01), token=order))
            self.witness.note("ok", "add", sorter="orders", order=order)

    def ask_item(self, job: str, kind: str, lane: int, other: int, luck: float) -> None:
        from proof.items import deliver

        deliver(f"item-{job}", lasting(luck))
        self.witness.note("ok", "deliver", item=f"item-{job}")

    def ask_update(self, job: str, kind: str, lane: int, other: int, luck: float) -> None:
        changes = self.author.changes(lane, other, job)
        self.witness.note("invoke", "update", id=job, changes=changes)
        self._insist(partial(self.author.update, changes, job))

    def ask_read(self, *about: object) -> None:
        self.author.read()

    @cached_property
    def author(self) -> Any:
        from proof.documents import Author

        return Author(os.environ["COORDINATOR_URL"], Path(os.environ["PROOF_DOCUMENTS"]), self.witness, self.name)

    def ask_lock(self, job: str, kind: str, lane: int, other: int, luck: float) -> None:
        key = f"k{lane}"

        def hold() -> None:
            try:
                with coordinator.lock(key, ttl=LEASE, blocking_timeout=luck) as lease:
                    about: dict[str, Any] = {"job": job, "fence": lease.fence}
                    self.witness.begin([key], keys=[key], **about)
                    time.sleep(lasting(luck, 0.8))
                    self.witness.write(key, lease.fence, job)
                    self.witness.note("ok", "run", **about)
            except (Locked, LeaseLost):
                pass

        self._insist(hold)

    def ask_grab(self, job: str, kind: str, lane: int, other: int, luck: float) -> None:
        """All clients grab the instances of a second."""
        instance = str(int(time.time()) // 2)

        def grab() -> None:
            part = coordinator.grab("report", instance, self.name, ttl=LEASE, on_losing="incomplete")
            if part.won:
                self.witness.note("invoke", "grab", instance=instance, fence=part.fence)
                time.sleep(lasting(luck, 0.7))
                try:
                    part.complete()
                    self.witness.note("ok", "grab", instance=instance, fence=part.fence)
                except LeaseLost:
                    self.witness.note("fail", "grab", instance=instance, fence=part.fence)

        self._insist(grab)

    def _ask(self, ask: Callable[[], object], job: str, kind: str, keys: list[str], effects: list[list[str]]) -> None:
        self.witness.note("invoke", "submit", job=job, kind=kind, keys=keys)
        self._insist(ask)
        self.witness.note("ok", "submit", job=job, kind=kind, keys=keys, effects=effects)

    def _insist(self, ask: Callable[[], object]) -> None:
        """Until the store has answered."""
        while True:
            try:
                ask()
            except (StoreUnavailable, StoreRefused):
                time.sleep(0.1)
            else:
                return


if __name__ == "__main__":
    name, seed, number, pause = sys.argv[1:5]
    client = Client(name, int(seed), int(number), float(pause))
    client.run(sum(f'"f":"asked","value":{{"client":"{name}"' in line for line in client.witness.lines()))
