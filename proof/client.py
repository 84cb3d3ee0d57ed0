"""A client of the laboratory: `python -m proof.client NAME SEED NUMBER PAUSE`.

It makes NUMBER requests, drawn from its seed: jobs of every kind, calls that jobs collect, locks, grabs, orders
of a sorter. It repeats a request without an answer under the same id, also one that another process had begun:
so it may be killed.
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

from coordinator import LeaseLost, Locked, StoreRefused, StoreUnavailable, UnknownQuota
from coordinator.core.jobs.options import SubmitOptions
from proof import IDLE, LANES, LEASE, SWARM_LANES, USES
from proof.shop import app, cells_of, coordinator, die, gather, keyed, parts, undo, wait, work
from proof.swarm import queue_of
from proof.witness import Witness

AGAIN: SubmitOptions = {"max_attempts": 1000, "retry_delay": 0.5, "time_limit": 15}
KINDS = {
    "plain": 30, "flow": 20, "pair": 10, "chain": 8, "parts": 5, "fails": 5, "retries": 5, "dies": 1, "cancelled": 5,
    "keyed": 8, "lock": 8, "grab": 10, "orders": 5, "after": 8, "event": 6, "waits": 5,
}  # fmt: skip
OF_WORLD = {
    "item": ("PROOF_ITEMS", 10), "update": ("PROOF_DOCUMENTS", 30), "read": ("PROOF_DOCUMENTS", 15),
    "order": ("PROOF_OUTBOX", 15), "swarm": ("PROOF_SWARM", 6),
}  # fmt: skip
KINDS |= {kind: often for kind, (variable, often) in OF_WORLD.items() if os.environ.get(variable)}


def lasting(luck: float, most: float = 0.95) -> float:
    """How long (s) a body takes: above `most` longer than a lease, so that it needs renewals."""
    return LEASE * (1.2 + 1.3 * (luck - most) / (1 - most)) if luck > most else luck * 0.4


class Client:
    def __init__(self, name: str, seed: int, number: int, pause: float) -> None:
        self.name, self.number, self.pause = name, number, pause
        self.chance = random.Random(f"{seed} {name}")
        self.witness = Witness.here(name)

    def run(self, done: int) -> None:
        """Go on after the first `done` requests. Their draws are repeated, so that the rest is the same."""
        for number in range(self.number):
            (kind,) = self.chance.choices([*KINDS], [*KINDS.values()])
            draw = self.chance.randrange(LANES), self.chance.randrange(1, LANES), self.chance.random()
            pause = self.chance.uniform(0, 2 * self.pause)
            if number >= done:
                getattr(self, f"request_{kind}", self.submit)(f"{self.name}-{number}", kind, *draw)
                self.witness.note("info", "asked", client=self.name, number=number)
                time.sleep(pause)
        self.witness.note("info", "finished", client=self.name)

    def submit(self, job: str, kind: str, lane: int, other: int, luck: float) -> None:
        seconds, key = lasting(luck), f"k{lane}"
        keys = {"flow": [key][: other % 2], "pair": [key, f"k{(lane + other) % LANES}"]}.get(kind, [key])
        options: SubmitOptions = {"job_id": job}
        signature: Any = work.s(seconds)
        steps = [0]
        if kind == "flow":
            uses = USES[(lane + other) % len(USES)]
            signature, options = work.s(seconds, uses=uses, until=1 + other % 3 // 2), {**options, "uses": uses}
            options |= {"max_attempts": 1000, "retry_delay": 0.2}
        elif kind == "chain":
            signature, steps = chain(work.si(seconds / 2), work.si(seconds / 2, 1)), [0, 1]
        elif kind == "parts":
            signature, options = parts.s(seconds), {**options, **AGAIN}
        elif kind == "fails":
            signature, options = work.s(seconds, fail=True), {**options, "rollback": undo.si()}
        elif kind == "retries":
            signature, options = work.s(seconds, until=2), {**options, "max_attempts": 1000, "retry_delay": 0.2}
        elif kind == "dies":
            signature, options = die.s(), {**options, "max_losses": 1}
        effects = [[cell, f"{job} {step}"] for cell in cells_of(keys, job) for step in steps]
        self._submit(lambda: coordinator.submit(keys, signature, **options).outcome, job, kind, keys, effects)
        if kind == "cancelled":
            self._retry(lambda: coordinator.cancel(job))

    def request_after(self, job: str, kind: str, lane: int, other: int, luck: float) -> None:
        """Three jobs in one call, in any order, of which the last runs after the others, and gets their results. It
        fails where the first does.
        """
        fails, lanes = luck > 0.8, [f"k{(lane + place * other) % LANES}" for place in range(3)]
        names = [f"{job}-a", f"{job}-b", job]
        first: tuple[str, Any, SubmitOptions] = (lanes[0], work.s(luck / 4, fail=fails), {"job_id": names[0]})
        if fails:
            first[2]["rollback"] = undo.si()
        second: tuple[str, Any, SubmitOptions] = (lanes[1], work.s(luck / 4), {"job_id": names[1]})
        after = {"first": names[0], "second": names[1]}
        last: tuple[str, Any, SubmitOptions] = (lanes[2], work.s(luck / 4), {"job_id": job, "after": after})
        jobs = [first, second, last]
        random.Random(job).shuffle(jobs)
        kinds = ["fails" if fails else "plain", "plain", "unmet" if fails else kind]
        causes: list[list[str]] = [[], [], names[:2]]
        about = [
            {"job": name, "kind": one, "keys": [key], **({"after": these} if these else {})}
            for name, one, key, these in zip(names, kinds, lanes, causes, strict=True)
        ]
        for each in about:
            self.witness.note("invoke", "submit", **each)
        self._retry(lambda: coordinator.submit_many(jobs))
        for each, key, name in zip(about, lanes, names, strict=True):
            self.witness.note("ok", "submit", **each, effects=[[key, f"{name} 0"]])

    def request_event(self, job: str, kind: str, lane: int, other: int, luck: float) -> None:
        """A job waits for an event, before it begins or in its middle. The event is set just before, or a while after,
        its submit.
        """
        event, keys = coordinator.event(f"event/{job}"), [f"k{lane}"]

        def set_it() -> None:
            self.witness.note("invoke", "set", event=event.name)
            self._retry(lambda: event.set(job))

        if luck < 0.3:
            set_it()
        options: SubmitOptions = {"job_id": job, "after": {"first": event}}
        signature, effects = work.s(luck / 4), [[keys[0], f"{job} 0"]]
        after = [event.name]
        if kind == "waits":
            options, signature, after = {"job_id": job}, wait.s(luck / 4, event.name), []
            effects.append([keys[0], f"{job} 1"])
        self._submit(lambda: coordinator.submit(keys, signature, **options), job, kind, keys, effects, after)
        if luck >= 0.3:
            time.sleep(luck - 0.3)
            set_it()

    def request_plain(self, job: str, kind: str, lane: int, other: int, luck: float) -> None:
        """A fourth of them is a call that a job collects, which stands in a lane of its own."""
        if int(luck * 1000) % 4:
            return self.submit(job, kind, lane, other, luck)
        key, signature = f"calls/{lane}", gather.s(job, lasting(luck))
        self.witness.note("invoke", "call", job=job, key=key)
        self._retry(lambda: coordinator.collect(key, signature, how="list", idle=0.3, max_wait=1, most=6, job_id=job))
        self.witness.note("ok", "call", job=job, key=key)
        return None

    request_waits = request_event

    def request_keyed(self, job: str, kind: str, lane: int, other: int, luck: float) -> None:
        key = f"keyed/{lane}"
        call = keyed.s(lane, lasting(luck)).set(task_id=job)
        self._submit(lambda: call.apply_async().id, job, kind, [key], [[key, f"{job} 0"]])

    def request_orders(self, job: str, kind: str, lane: int, other: int, luck: float) -> None:
        """Add three orders at a time, unsorted."""
        sorter = coordinator.sorter("orders", IDLE)
        for letter in random.Random(job).sample("abc", 3):
            order = f"{letter}-{job}"
            self.witness.note("invoke", "add", sorter="orders", order=order)
            self._retry(partial(sorter.add, order, "sorted", work.s(0.01), token=order))
            self.witness.note("ok", "add", sorter="orders", order=order)

    def request_item(self, job: str, kind: str, lane: int, other: int, luck: float) -> None:
        from proof.items import deliver

        deliver(f"item-{job}", lasting(luck))
        self.witness.note("ok", "deliver", item=f"item-{job}")

    def request_order(self, job: str, kind: str, lane: int, other: int, luck: float) -> None:
        """An order in a database, and its job in an outbox; each fifth transaction is rolled back."""
        from proof.outbox import order

        about = {"job": job, "kind": "undone" if luck > 0.8 else "order", "keys": [key := f"orders/{lane % 3}"]}
        self.witness.note("invoke", "submit", **about)
        order(job, key, luck / 4, luck > 0.8)
        if luck > 0.8:
            self.witness.note("fail", "submit", **about)
        else:
            self.witness.note("ok", "submit", **about, effects=[[key, f"{job} 0"]])

    def request_update(self, job: str, kind: str, lane: int, other: int, luck: float) -> None:
        changes = self.author.changes(lane, other, job)
        self.witness.note("invoke", "update", id=job, changes=changes)
        self._retry(partial(self.author.update, changes, job))

    def request_read(self, *about: object) -> None:
        self.author.read()

    @cached_property
    def author(self) -> Any:
        from proof.documents import Author

        return Author(os.environ["COORDINATOR_URL"], Path(os.environ["PROOF_DOCUMENTS"]), self.witness, self.name)

    def request_swarm(self, job: str, kind: str, lane: int, other: int, luck: float) -> None:
        """Many short jobs in one call, for the swarm: some use units, or stand in a lane of the other jobs, too."""
        chance, jobs = random.Random(job), list[tuple[list[str], Any, SubmitOptions]]()
        queue = queue_of(app.conf.task_default_queue)
        for number in range(chance.randrange(20, 51)):
            keys, uses = [f"s/{chance.randrange(SWARM_LANES)}"], dict[str, int]()
            if number == 0:
                keys.append(f"k{lane}")
            elif chance.random() < 0.1:
                uses = USES[chance.randrange(len(USES))]
            call = work.s(lasting(chance.random(), 0.98), uses=uses, until=1 + chance.randrange(10) // 9)
            options: SubmitOptions = {"job_id": f"{job}-{number}", "max_attempts": 1000, "retry_delay": 0.2}
            jobs.append((keys, call.set(queue=queue), {**options, **({"uses": uses} if uses else {})}))
        about: list[dict[str, Any]] = [
            {"job": options["job_id"], "kind": kind, "keys": keys} for keys, _, options in jobs
        ]
        for each in about:
            self.witness.note("invoke", "submit", **each)
        self._retry(lambda: coordinator.submit_many(jobs))
        for each in about:
            self.witness.note("ok", "submit", **each, effects=[[key, f"{each['job']} 0"] for key in each["keys"]])

    def request_lock(self, job: str, kind: str, lane: int, other: int, luck: float) -> None:
        key = f"k{lane}"

        def hold() -> None:
            try:
                with coordinator.lock(key, ttl=LEASE, blocking_timeout=1 + luck) as lease:
                    about: dict[str, Any] = {"job": job, "fence": lease.fence}
                    self.witness.begin([key], keys=[key], **about)
                    time.sleep(lasting(luck, 0.8))
                    self.witness.write(key, lease.fence, job)
                    self.witness.note("ok", "run", **about)
            except (Locked, LeaseLost):
                pass

        self._retry(hold)

    def request_grab(self, job: str, kind: str, lane: int, other: int, luck: float) -> None:
        """All clients grab the instance of the current two seconds: the witness', since theirs may be others."""
        instance = str(self.witness.now() // 2)

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

        self._retry(grab)

    def _submit(
        self, call: Callable[[], object], job: str, kind: str, keys: list[str], effects: list[list[str]],
        after: list[str] | None = None,
    ) -> None:  # fmt: skip
        about: dict[str, Any] = {"job": job, "kind": kind, "keys": keys, **({"after": after} if after else {})}
        self.witness.note("invoke", "submit", **about)
        self._retry(call)
        self.witness.note("ok", "submit", **about, effects=effects)

    def _retry(self, call: Callable[[], object]) -> None:
        """Repeat the call until the store answers, and knows the quotas: a fault may have emptied it."""
        while True:
            try:
                call()
            except (StoreUnavailable, StoreRefused, UnknownQuota):
                time.sleep(0.1)
            else:
                return


if __name__ == "__main__":
    name, seed, number, pause = sys.argv[1:5]
    client = Client(name, int(seed), int(number), float(pause))
    client.run(sum(f'"f":"asked","value":{{"client":"{name}"' in line for line in client.witness.lines()))
