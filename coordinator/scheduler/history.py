"""Reads the history of an entry: its last ticks, as Redis noted them. functions/rules/ticks.lua writes the lines."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from urllib.parse import quote, unquote

from kombu.utils.json import loads

from coordinator.errors import InvalidJob
from coordinator.scheduler.entry import run_id, tick_id
from coordinator.store.times import instant, moment

_ERROR, _LONGEST = "\x1f", 200  # stands before an error; characters of one
_NO_END: tuple[str, datetime | None] = ("", None)


@dataclass(frozen=True, slots=True)
class EntryEvent:
    """A tick of an entry, a run out of turn, or an act of an operator.

    * at: the tick's instant; of a run or an act, its time. late: seconds by which a tick was sent late. beat: host and
      pid of the beat that sent it.
    * word: the outcome of the job's submit; `sent` for an ordinary task; `failed`: no job or task could be made;
      `omitted`: an operator stopped it; `missed`: no beat sent it in time; of an act, its name.
    * error: why no job or task could be made.
    * missed: the number of instants before it that nobody sent; of a `missed` tick, up to it. 1000 means 1000 or more.
    * state: the end of the job; "" = it has not ended, or nobody knows. job_id: the id of the job or task.
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
    error: str = ""


_OMITS = re.compile(r"(?<=^omits )\d+$")


def read(name: str, lines: Iterable[bytes]) -> list[EntryEvent]:
    """Read the lines of an entry's history, the latest last."""
    happenings: list[EntryEvent] = []
    texts = [line.decode(errors="replace") for line in lines]
    ends = dict(_end(text) for text in texts if text[:1] == "=")
    for text in texts:
        if text[:1] == "!":
            token, wall, word, sender, act = text[1:].split(" ", 4)
            beat, error = _sender(sender)
            state, ended = ends.get(f"!{token}", _NO_END)
            job_id = str(run_id(name, token))
            happenings.append(
                EntryEvent("run", instant(int(wall)), word, 0, 0, beat, job_id, state, ended, error=error, **loads(act))
            )
        elif text[:1] == "~":
            note = loads(text[1:])
            act = _OMITS.sub(lambda found: moment(instant(int(found[0]))), note["act"])
            happenings.append(EntryEvent("act", instant(note["at"]), act, by=note["by"], why=note["why"]))
        elif text[:1] != "=":
            at, late, word, missed, sender = text.split(" ", 4)
            beat, error = _sender(sender)
            state, ended = ends.get(at, _NO_END)
            when = instant(int(at))
            job_id = str(tick_id(name, when)) if word not in ("omitted", "missed", "failed") else ""
            happened = when, word, int(late) / 1000, int(missed), beat, job_id, state, ended
            happenings.append(EntryEvent("tick", *happened, error=error))
    return happenings


def sender_of(beat: str, error: Exception | None = None) -> str:
    """The beat as a line of the history names it, without blanks; with the error for which it could send nothing."""
    if error is None:
        return beat
    said = str(error) if isinstance(error, InvalidJob) else f"{type(error).__name__}: {error}"
    return f"{beat}{_ERROR}{quote(said[:_LONGEST])}"


def _sender(text: str) -> tuple[str, str]:
    beat, _, error = text.partition(_ERROR)
    return beat, unquote(error)


def _end(text: str) -> tuple[str, tuple[str, datetime]]:
    """Read a line about an end: the tick, and how and when its job ended."""
    tick, state, wall = text[1:].split(" ", 2)
    return tick, (state, instant(int(wall)))
