"""Sequences of public calls, each made on both sides of beside.py; then both answer alike and hold the same."""

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any

from tests.model.beside import InMemory, Real
from tests.model.side import plain_text
from tests.model.steps import Stepping, act, tell

A, B, C = "a", "b", "g/c"
KEYS = [(A,), (A,), (A,), (B,), (C,), (A, B), (B, A), (B, C), (A, B, C)]
KEY = [A, A, B, C]
PICK = range(1000)
LIMITS = [0, 1, 1, 2, 2]  # above 2, which place a job holds depends on the moment

UNDO = {"task": "work", "script": []}
UNDO_BADLY = {"task": "work", "script": [["raise", 99]]}
UNDO_AND_LOOK = {"task": "work", "script": [["cancel", ["j002"], {}], ["check"], ["pause", [B], {}]]}

# What a submit may ask for beside its keys: how often, and one of what. `not_before` is in seconds from now.
OPTIONS: list[tuple[float, list[dict[str, Any]]]] = [
    (0.2, [{"when_busy": "skip"}, {"when_busy": "defer"}]),
    (0.2, [{"when_busy": "defer", "unite": {"x": texts}} for texts in (["b", "c"], ["c", "a"], None)]),
    (0.5, [{"max_attempts": 2}, {"max_attempts": 3}]),
    (0.3, [{"rollback": UNDO}, {"rollback": UNDO}, {"rollback": UNDO_BADLY}, {"rollback": UNDO_AND_LOOK}]),
    (0.2, [{"on_failure": "hold"}]),
    (0.3, [{"priority": 5}, {"priority": -5}]),
    (0.1, [{"max_waiting": 1}, {"max_waiting": 0}]),
    (0.1, [{"not_before": 3_000.0}, {"not_before": 6_000.0}]),
    (0.1, [{"weight": "all"}]),
    (0.03, [{"start_at": 1}, {"priority": 999}]),
]

ENDS = [
    [["value", 7]], [["raise", 2]], [["raise", 3]], [["raise", 99]], [["raise", 99]], [["conflict", 3]],
    [["conflict", 99]], [["no retry"]], [["eager", True]], [["eager", False]], [["conflict", 2], ["raise", 3]],
    [["conflict", 2], ["raise", 4]],
]  # fmt: skip


def drawn(chance: Random) -> Random:
    """The step draws for itself."""
    return chance


class Both(Stepping):
    sides: tuple[InMemory, Real]
    again = False
    parts = ("locks", "operators", "limits", "sorters", "parked", "nested")

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count(1)
        self.ids: list[str] = []
        for side in self.sides:
            side.begin()

    def teardown(self) -> None:
        for side in self.sides:
            side.end()

    def begin(self, chance: Random) -> None:
        """Where nothing stands in a lane's way, each job is over at once."""
        super().begin(chance)
        for key in (A, B, C):
            name, *given = chance.choice(
                [["lock", key], ["pause", key], ["set_limit", key, 0], ["set_limit", key, 2], ["lane", key]]
            )
            self.both(name, *given)

    def look_at_all(self) -> None:
        """Both hold the same."""
        memory, real = (side.seen(self.ids, [A, B, C]) for side in self.sides)
        wrong = list(differences("", memory, real))
        assert not wrong, "\n".join(wrong)

    def both(self, name: str, *args: Any, **options: Any) -> Any:
        tell(f"{name}{args}{options}")
        memory, real = (plain_text(side.call(name, *args, **options)) for side in self.sides)
        assert memory == real, f"{name}: in memory {memory}, on Redis {real}"
        return memory

    # What is drawn

    def new(self, what: str = "j") -> str:
        self.ids.append(f"{what}{next(self._numbers):03}")
        return self.ids[-1]

    def some(self, chance: Random, *states: str) -> str:
        """An id, mostly a late one, mostly in one of these states."""
        memory = self.sides[0].core
        fit = [one for one in self.ids if one in memory.rules.records and memory.job(one).state in states]
        return chance.choice((fit if fit and chance.random() < 0.8 else self.ids)[-6:] or ["nobody"])

    def options(self, chance: Random) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for often, choices in OPTIONS:
            if chance.random() < often:
                found |= chance.choice(choices)
        if "not_before" in found:
            now = self.sides[0].core.rules.now() / 1000
            found["not_before"] = datetime.fromtimestamp(now + found["not_before"], UTC)
        return found

    def signature(self, chance: Random, depth: int = 2) -> dict[str, Any]:
        if chance.random() < 0.25:
            steps = [self.task(chance, depth - 1) for _ in range(chance.choice([2, 3]))]
            return {"steps": [one | {"immutable": chance.random() < 0.5} for one in steps]}
        told = {kind: f"{kind} of {len(self.ids)}" for kind in ("link", "link_error") if chance.random() < 0.1}
        return self.task(chance, depth) | told

    def task(self, chance: Random, depth: int) -> dict[str, Any]:
        return {"task": "work", "script": self.script(chance, depth)}

    def script(self, chance: Random, depth: int) -> list[Any]:
        calls: list[Any] = []
        if depth > 0 and "nested" not in self.without and chance.random() < 0.5:
            calls = [self.inner(chance, depth - 1) for _ in range(chance.choice([1, 1, 2, 3]))]
        if chance.random() < 0.6:
            calls += chance.choice(ENDS)
        elif "parked" not in self.without and chance.random() < 0.2:
            calls.append(
                [
                    "park",
                    [self.some(chance, "waiting", "held", "parked", "collected") for _ in range(chance.choice([1, 2]))],
                ]
            )
        return calls

    def inner(self, chance: Random, depth: int) -> list[Any]:
        """One call that a task makes."""
        key, job = chance.choice(KEY), self.some(chance)
        pick: Callable[[], list[Any]] = chance.choice([
            lambda: ["check"],
            lambda: ["submit", *self.asked(chance, depth)],
            lambda: ["submit", *self.asked(chance, depth)],
            lambda: ["submit", *self.asked(chance, depth)],
            lambda: ["add", *self.ordered(chance, depth)],
            lambda: ["flush", [], {}],
            lambda: ["cancel", [job], {"why": "why", "by": "anna"}],
            lambda: ["retry", [job], {"why": "why", "by": "anna"}],
            lambda: ["move", [job], {"priority": chance.choice([None, 1]), "to": "front", "by": "anna"}],
            lambda: ["release", [key], {"why": "why", "by": "anna"}],
            lambda: ["pause", [key], {"by": "anna"}],
            lambda: ["resume", [key], {"by": "anna"}],
            lambda: ["set_limit", [key, chance.choice(LIMITS)], {"by": "anna"}],
            lambda: ["lock", [key], {}],
            lambda: ["unlock", [key], {}],
        ])  # fmt: skip
        return pick()

    def asked(self, chance: Random, depth: int = 2) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a submit."""
        signature, options = self.signature(chance, depth), self.options(chance)
        if options.get("when_busy") == "defer" and chance.random() < 0.7:
            signature = {"task": "work", "script": []}
        known = self.ids and chance.random() < 0.05
        keys = chance.choice(KEYS)
        if options.get("when_busy") == "skip" and len(keys) > 1 and len(self.ids) % 2:
            options["when_busy"] = dict.fromkeys(keys, "queue") | {keys[-1]: "skip"}
        return [keys, signature], options | {"job_id": self.some(chance) if known else self.new()}

    def ordered(self, chance: Random, depth: int = 2) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of an order that a sorter is to hold."""
        options = {
            name: one for name, one in self.options(chance).items() if name not in ("when_busy", "unite", "max_waiting")
        }
        sorter, name = chance.choice(["s", "s", "s2"]), chance.choice(["b", "a", "é", "10", "9"]) + str(len(self.ids))
        self.ids.append(f"{sorter}/{name}")
        return [sorter, name, chance.choice(KEYS), self.signature(chance, depth)], options

    # What is done

    @act(16, chance=drawn)
    def submit(self, chance: Random) -> None:
        given, options = self.asked(chance)
        self.both("submit", *given, **options)

    @act(2, chance=drawn)
    def submit_many(self, chance: Random) -> None:
        jobs = [self.asked(chance, 1) for _ in range(chance.choice([2, 3, 4]))]
        self.both("submit_many", [(*given, options) for given, options in jobs])

    @act(3, part="locks", key=KEY, wait=[0.0, 0.0, 0.0, 0.001, -1.0])
    def lock(self, key: str, wait: float) -> None:
        self.both("lock", key, wait)

    @act(4, part="locks", key=KEY)
    def unlock(self, key: str) -> None:
        self.both("unlock", key)

    @act(4, part="sorters", chance=drawn)
    def add(self, chance: Random) -> None:
        given, options = self.ordered(chance)
        for _ in range(chance.choice([1, 1, 2])):
            self.both("add", *given, **options, token=chance.choice([None, "mine", "mine"]))

    @act(3, part="sorters", names=[(), ("s",), ("s2",), ("nobody",)])
    def flush(self, names: tuple[str, ...]) -> None:
        self.both("flush", *names)

    @act(4, part="operators", chance=drawn)
    def cancel(self, chance: Random) -> None:
        self.both("cancel", self.some(chance, "waiting", "held", "parked", "collected"), why="why", by="anna")

    @act(8, part="operators", chance=drawn, to=["back", "back", "front", "side"])
    def retry(self, chance: Random, to: str) -> None:
        ended = ("held", "failed", "cancelled", "rolled_back", "double_fault")
        self.both("retry", self.some(chance, *ended), to=to, why="why", by="anna")

    @act(4, part="operators", chance=drawn, priority=[None, None, 5, 0, -5, 999], to=["back", "front", "side"],
         token=[None, "one", "two"])  # fmt: skip
    def move(self, chance: Random, priority: int | None, to: str, token: str | None) -> None:
        self.both("move", self.some(chance, "waiting"), priority=priority, to=to, why="why", by="anna", token=token)

    @act(3, part="operators", chance=drawn, key=[*KEY, ""])
    def release(self, chance: Random, key: str) -> None:
        holder = self.some(chance, "held", "parked", "waiting") if chance.random() < 0.3 else ""
        self.both("release", key, why="why", by="anna", holder=holder)

    @act(3, part="operators", key=[*KEY, ""], by=["anna", "bert"])
    def pause(self, key: str, by: str) -> None:
        self.both("pause", key, why="why", by=by)

    @act(5, part="operators", key=[*KEY, ""])
    def resume(self, key: str) -> None:
        self.both("resume", key, why="why", by="anna")

    @act(3, part="limits", key=[*KEY, ""], limit=[*LIMITS, *LIMITS, -1, 1001])
    def set_limit(self, key: str, limit: int) -> None:
        if not self.sides[0].locked_by_tasks():  # which of the places they hold would matter
            self.both("set_limit", key, limit, why="why", by="anna")

    # Looking

    @act(2, chance=drawn)
    def look(self, chance: Random) -> None:
        self.both("wait", self.some(chance))

    @act(1, prefix=["", "g", "b"], state=[None, "held", "empty"], after=["", "a", "b"])
    def page(self, prefix: str, state: str | None, after: str) -> None:
        self.both("lanes", prefix, state, 2, after)


def differences(where: str, memory: Any, real: Any) -> Iterator[str]:
    """Each part in which they differ."""
    if isinstance(memory, dict) and isinstance(real, dict) and memory.keys() == real.keys():
        for name, found in memory.items():
            yield from differences(f"{where} {name}", found, real[name])
    elif isinstance(memory, list) and isinstance(real, list) and len(memory) == len(real):
        for number, found in enumerate(memory):
            yield from differences(f"{where} {number}", found, real[number])
    elif memory != real:
        yield f"{where.strip()}: in memory {memory}, on Redis {real}"
