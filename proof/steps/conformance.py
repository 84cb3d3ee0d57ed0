"""Holds a recording against the model: each answer, and what Redis keeps whenever somebody looked."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field

from proof.model.ready import Server
from proof.steps.asked import Unknown
from proof.steps.documents import Documents
from proof.steps.player import Player
from proof.steps.playing import Deviation, Playing
from proof.steps.recording import Look, Recording, Step

PLAYED: dict[str, Callable[[], Playing]] = {"{proof}:": Player, "{documents}:": Documents}
"""The installations whose steps are held, and who plays them."""


@dataclass
class Held:
    """`predicted`, `unknown`: how many steps of each name; `looks`: how often all keys were compared; `branches`: that
    were played; `wrong`: a sentence each, and `at`: the state that the first wrong step made, or that was looked at.
    """

    predicted: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    looks: int = 0
    branches: int = 0
    wrong: list[str] = field(default_factory=list)
    at: str = ""

    def fails(self, state: str, text: str) -> None:
        self.at = self.at or state
        self.wrong.append(f"{state or 'an empty store'}: {text}")

    def text(self) -> str:
        """In a line."""
        unknown = "".join(f", {number} of {name} unknown" for name, number in self.unknown.items())
        found = f"{len(self.wrong)} wrong" if self.wrong else "as the model says"
        return f"{self.steps} steps in {self.branches} branches, all keys {self.looks} times{unknown}: {found}"

    @property
    def steps(self) -> int:
        return self.predicted.total() + self.unknown.total()


def hold(recording: Recording, prefix: str) -> Held:
    """Play all branches of an installation, those of one server in its order; each to its end, or to where the model
    has lost its way.
    """
    held, servers = Held(), [deque(_branches(log)) for log in recording.steps(prefix)]
    forks = {part[0].before for parts in servers for part in parts}
    known: dict[str, Playing] = {"": PLAYED.get(prefix, Player)()}
    fences: dict[str, tuple[int, str]] = {}
    remembered: dict[str, Server] = {}
    while ready := [parts for parts in servers if parts and parts[0][0].before in known]:
        for parts in ready:
            part = parts.popleft()
            held.branches += 1
            player = deepcopy(known[part[0].before])
            player.fences, player.servers = fences, remembered
            looks = recording.looked(prefix, part)
            for number, step in enumerate(part):
                if not _play(step, player, held):
                    break
                if number in looks:
                    _compare(player, looks[number], held)
                if step.after in forks and step.after not in known:
                    known[step.after] = deepcopy(player)
    for part in [] if held.wrong else [part for parts in servers for part in parts]:
        held.fails(part[0].before, f"{len(part)} steps go on from a state that no recorded step made")
    return held


def _branches(log: list[Step]) -> Iterator[list[Step]]:
    """Steps of one server, each of which begins where the one before it ended."""
    part: list[Step] = []
    for step in log:
        if part and step.before != part[-1].after:
            yield part
            part = []
        part.append(step)
    if part:
        yield part


def _play(step: Step, player: Playing, held: Held) -> bool:
    try:
        player.play(step)
    except Unknown as error:
        held.unknown[f"{step.name}: {error}"] += 1
        return step.before == step.after  # what it wrote is unknown, too
    except Deviation as error:
        held.fails(step.after, f"{step.name}{tuple(step.args)} {error}")
        return False
    held.predicted[step.name] += 1
    return True


def _compare(player: Playing, look: Look, held: Held) -> None:
    held.looks += 1
    for text in player.differences(look):
        held.fails(look.state, text)
