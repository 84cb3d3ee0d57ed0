"""Holds a recording against the model: each answer, and what Redis keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field

from proof.steps.asked import Unknown
from proof.steps.player import Deviation, Player
from proof.steps.recording import Step


@dataclass
class Held:
    """What became of a recording: `predicted` steps by name, `unknown` ones, and what is `wrong`, a sentence each."""

    predicted: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def branches(logs: Iterable[list[Step]]) -> Iterator[list[Step]]:
    """Steps of one server, each of which begins where the one before it ended."""
    for log in logs:
        part: list[Step] = []
        for step in log:
            if part and step.before != part[-1].after:
                yield part
                part = []
            part.append(step)
        if part:
            yield part


def hold(logs: Iterable[list[Step]]) -> tuple[Held, dict[str, Player]]:
    """Of one installation; and what the model knew at the end of each branch, by the name of the state."""
    held, parts = Held(), list(branches(logs))
    forks = {part[0].before for part in parts}
    known, ends = {"": Player()}, dict[str, Player]()
    while ready := [part for part in parts if part[0].before in known]:
        for part in ready:
            parts.remove(part)
            player = deepcopy(known[part[0].before])
            ends.pop(part[0].before, None)
            for step in part:
                try:
                    player.play(step)
                    held.predicted[step.name] += 1
                except Unknown as error:
                    held.unknown[str(error)] += 1
                except Deviation as error:
                    held.wrong.append(f"{step.after}: {step.name}{tuple(step.args)}: {error}")
                    return held, ends
                if step.after in forks and step.after not in known:
                    known[step.after] = deepcopy(player)
            ends[part[-1].after] = player
    for part in parts:
        held.wrong.append(f"{len(part)} steps begin at {part[0].before}, which no step made")
    return held, ends
