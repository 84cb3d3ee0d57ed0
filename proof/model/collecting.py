"""The machine's steps with sorters: orders are held, flushed a few at a time by whoever comes, and cancelled meanwhile.

A flush is called once a step, with anything between: that is what a crash in its middle and another's going on are. It
is not called twice for one step: asked again, it goes on.
"""

from random import Random
from typing import Any

from proof.model import asks
from proof.model.beside import ACT
from proof.model.machine import KEYS, PICK, Machine
from proof.model.record import Job
from proof.model.steps import act

SORTERS = ["s", "s", "s2"]
SORT_KEYS = ["b", "a", "ab", "abc", "B", "\u00e9", "10", "9"]
IDLE, LONGEST = [1, 1_000, 10_000], [0, 0, 5_000]


def holding(machine: Machine) -> bool:
    return bool(machine.model.flushes())


def _orders(chance: Random) -> list[tuple[str, tuple[str, ...], int, str]]:
    """Sort key, keys, priority, flavour of each."""
    flavours = ["bare", "bare", "later", "later", "hurried", *sorted(asks.FLAVOURS)]
    count = chance.choice([1, 2, 3, 4])
    choices: list[list[Any]] = [SORT_KEYS, KEYS, [0, 0, 0, 5, -5], flavours]
    return [tuple(chance.choice(one) for one in choices) for _ in range(count)]


def _file(chance: Random) -> tuple[str, str]:
    """Path and identity; mostly of no file."""
    return ("", "") if chance.random() < 0.6 else (chance.choice(["/in/a", "/in/b"]), chance.choice(["1", "2"]))


class Collecting(Machine):
    @act(5, part="sorters", sorter=SORTERS, orders=_orders, idle=IDLE, longest=LONGEST, file=_file)
    def add(
        self, sorter: str, orders: list[tuple[str, tuple[str, ...], int, str]], idle: int, longest: int,
        file: tuple[str, str],
    ) -> None:  # fmt: skip
        for sort_key, keys, priority, flavour in orders:
            about = (f"{sorter}/{self.new('o')}", keys, priority, flavour)
            self._add(about, sorter, sort_key, self.new("a"), idle, longest, *file)

    @act(
        4,
        lambda machine: 0 in machine.model.flushes().values(),
        part="sorters",
        pick=PICK,
        sort_key=SORT_KEYS,
        idle=IDLE,
    )
    def add_behind_a_batch(self, pick: int, sort_key: str, idle: int) -> None:
        """A late one: it joins the next batch, wherever it would stand in this."""
        sorter = self.some([name for name, at in self.model.flushes().items() if at == 0] or SORTERS, pick)
        about = (f"{sorter}/{self.new('o')}", KEYS[pick % len(KEYS)], 0, "bare")
        self._add(about, sorter, sort_key, self.new("a"), idle, 0, "", "")

    def _add(self, about: tuple[Any, ...], *order: Any) -> None:
        name, keys, priority, flavour = about
        wanted = {
            what: one for what, one in asks.FLAVOURS[flavour].items() if what not in ("when_busy", "room", "collect")
        }
        ask = asks.Ask(name, keys, priority, self.model.wall, "", **wanted)
        ask.job.sorter, ask.job.sort_key, ask.job.asked = order[:3]
        expected = self.model.add(ask.job, *order[3:])
        then = self.model.add(ask.job, *order[3:])  # of a file: `seen`
        assert self.call("sorter_add", *ask.held(*order), then=then) == expected

    @act(part="sorters", pick=PICK, keys=KEYS, ours=[False, False, True], file=_file)
    def add_a_known_id(self, pick: int, keys: tuple[str, ...], ours: bool, file: tuple[str, str]) -> None:
        """Of another's, or asked for again by who added it."""
        held = [job.id for job in self.model.jobs.values() if job.sorter]
        name = self.some(held, pick) if held and pick % 4 else self.any_job(pick)
        known = self.model.jobs.get(name) or Job(name, keys, None)
        asked = known.asked if ours and known.asked else self.new("a")
        if name != "nobody":
            self._add((name, keys, 0, "bare"), known.sorter or "s", "a", asked, 1_000, 0, *file)

    @act(5, lambda machine: machine.model.due_sorters(), 1, part="sorters", most=[1, 1, 2, 300])
    def flush(self, most: int) -> None:
        self.again = False
        expected = self.model.flush(most)
        assert self.call("sorter_flush", most) == expected

    @act(2, holding, part="sorters", pick=PICK)
    def hasten(self, pick: int) -> None:
        sorter = self.some(SORTERS, pick)
        assert self.call("sorter_hasten", sorter, ACT) == self.model.hasten(sorter)

    @act(2, holding, part="sorters", pick=PICK)
    def cancel_what_is_held(self, pick: int) -> None:
        held = [job for job in self.model.jobs.values() if job.state == "collected"]
        held = [job for job in held if job.sealed] or held
        self._cancel(self.some(held, pick).id if held else "nobody")

    @act(3, lambda machine: holding(machine) and not machine.model.due_sorters(), part="sorters", ms=[1, 1_000, 10_000])
    def nothing_comes(self, ms: int) -> None:
        """For as long as a sorter waits for more."""
        self.pass_time(ms)

    @act(5, lambda machine: any(machine.model.seen.values()), part="sorters", pick=PICK, late=[False, True])
    def forget_files(self, pick: int, late: bool) -> None:
        """`late`: by a watcher that read them before the last ones came."""
        sorter = self.some(SORTERS, pick)
        files = {path: "0" if late else identity for path, identity in self.model.seen[sorter].items()}
        expected = self.model.forget_files(sorter, files)
        pairs = [part for pair in files.items() for part in pair]
        assert self.call("sorter_forget", sorter, *pairs, then=0) == expected
