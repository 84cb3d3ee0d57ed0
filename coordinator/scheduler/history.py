"""The history of an entry: its last ticks, as Redis noted them. functions/rules/ticks.lua has the lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from coordinator.scheduler.entries import run_id, tick_id
from coordinator.store.times import instant

_NO_END: tuple[str, datetime | None] = ("", None)


@dataclass(frozen=True, slots=True)
class Happening:
    """One tick of an entry, one run that somebody asked for, or one act of an operator.

    * at: the tick's instant; of a run or an act, when it was. late: seconds from when a tick was to be sent to when it
      was. beat: host and pid of the beat that sent it.
    * word: the outcome of the job's submit; `sent` for an ordinary task; `failed`: it could not be made; `omitted`: an
      operator stopped it; `missed`: no beat ran; of an act, what it was.
    * missed: how many instants before it nobody sent; of a tick that is `missed`, how many up to it.
    * state: how the job ended, "" = it did not yet, or nobody knows. job_id: the id of the job or task.
    """

    kind: Literal["tick", "run", "act"]
    at: datetime
    word: str
    late: float = 0.0
    missed: int = 0
    beat: str = ""
    job_id: str = ""
    state: str = ""
    ended: datetime | None = None
    by: str = ""
    why: str = ""


def read(name: str, lines: Iterable[bytes]) -> list[Happening]:
    """The happenings of an entry, the latest last."""
    found: list[Happening] = []
    texts = [line.decode(errors="replace") for line in lines]
    ends = dict(_end(text) for text in texts if text[:1] == "=")
    for text in texts:
        if text[:1] == "!":
            token, wall, word, beat, said = _fields(text, 5)
            state, ended = ends.get(f"!{token}", _NO_END)
            by, _, why = said.partition(": ")
            job_id = str(run_id(name, token))
            found.append(Happening("run", instant(int(wall)), word, 0.0, 0, beat, job_id, state, ended, by, why))
        elif text[:1] == "~":
            wall, said = text[1:].split(" ", 1)
            act, _, why = said.partition(": ")
            act, _, by = act.rpartition(" ")
            found.append(Happening("act", instant(int(wall)), act, by=by, why=why))
        elif text[:1] != "=":
            at, late, word, missed, beat = text.split(" ", 4)
            state, ended = ends.get(at, _NO_END)
            when = instant(int(at))
            job_id = str(tick_id(name, when)) if word not in ("omitted", "missed", "failed") else ""
            found.append(Happening("tick", when, word, int(late) / 1000, int(missed), beat, job_id, state, ended))
    return found


def _end(text: str) -> tuple[str, tuple[str, datetime]]:
    """The tick, and how and when its job ended."""
    tick, state, wall = _fields(text, 3)
    return tick, (state, instant(int(wall)))


def _fields(text: str, number: int) -> list[str]:
    """The fields behind the line's mark; a line that was cut short has empty ones."""
    parts = text[1:].split(" ", number - 1)
    return parts + [""] * (number - len(parts))
