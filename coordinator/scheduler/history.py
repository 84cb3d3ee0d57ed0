"""Parses the history of a schedule entry: the lines about its last ticks, which functions/rules/ticks.lua writes to a
Redis list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Literal
from urllib.parse import quote, unquote

from kombu.utils.json import loads

from coordinator.core.store.times import instant, moment
from coordinator.errors import InvalidJob
from coordinator.scheduler.entry import run_id, tick_id

_ERROR = "\x1f"  # separates the beat's name from an error
_LONGEST = 200  # characters of an error that are kept
_NO_RUN = ("failed", "omitted", "missed", "skipped")  # words of a tick of which nothing was made
_NO_END: tuple[str, datetime | None] = ("", None)


@dataclass(frozen=True, slots=True)
class EntryEvent:
    """An event in the history of a schedule entry. `kind`: `tick`, `run` (requested by an operator) or `act` (of an
    operator, such as a pause).

    * at: the instant of a tick; the time of a run or an act. late: seconds by which a tick was sent late. beat: host
      and pid of the beat that sent the tick or the run.
    * word: of a tick or run: the outcome of the job's submit; `sent`: an ordinary task was published; `failed`: no job
      or task could be made, for the reason `error`; `omitted`: an operator skipped this instant; `missed`: no beat sent
      it in time. Of an act: its name.
    * missed: the number of instants before this one that were not sent; of a `missed` tick, this one included. 1000
      means 1000 or more.
    * job_id: the id of the job or task. state, ended: how and when the job ended; "" and None: not yet, or unknown.
    * by, why: the operator and the reason, of a run or an act.
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
    """Parse the lines of the history of the entry `name`, and return the events, the latest last."""
    events: list[EntryEvent] = []
    texts = [line.decode(errors="replace") for line in lines]
    ends = dict(_end(text) for text in texts if text[:1] == "=")
    for text in texts:
        if text[:1] == "!":
            token, wall, word, sender, act = text[1:].split(" ", 4)
            beat, error = _sender(sender)
            state, ended = ends.get(f"!{token}", _NO_END)
            job_id = str(run_id(name, token))
            events.append(
                EntryEvent("run", instant(int(wall)), word, 0, 0, beat, job_id, state, ended, error=error, **loads(act))
            )
        elif text[:1] == "~":
            note = loads(text[1:])
            act = _OMITS.sub(lambda match: moment(instant(int(match[0]))), note["act"])
            events.append(EntryEvent("act", instant(note["at"]), act, by=note["by"], why=note["why"]))
        elif text[:1] != "=":
            at, late, word, missed, sender = text.split(" ", 4)
            beat, error = _sender(sender)
            state, ended = ends.get(at, _NO_END)
            when = instant(int(at))
            job_id = str(tick_id(name, when)) if word not in ("omitted", "missed", "failed") else ""
            fields = when, word, int(late) / 1000, int(missed), beat, job_id, state, ended
            events.append(EntryEvent("tick", *fields, error=error))
    return events


def last_run(events: Sequence[EntryEvent]) -> EntryEvent | None:
    """Return the last tick or run of which a job or task was made; None: there is none among these events."""
    return next((one for one in reversed(events) if one.kind != "act" and one.word not in _NO_RUN), None)


def failing_since(events: Sequence[EntryEvent]) -> datetime | None:
    """Return the instant since which no tick or run could be made a job or task; None: the last one could. Ticks that
    nobody tried, since they were missed or left out, do not count.
    """
    tried = [one for one in events if one.kind != "act" and one.word not in ("omitted", "missed")]
    failed = takewhile(lambda one: one.word == "failed", reversed(tried))
    return min((one.at for one in failed), default=None)


def sender_of(beat: str, error: Exception | None = None) -> str:
    """The text about a beat for a line of the history: its host and pid, and, percent-encoded, the error for which no
    job or task could be made.
    """
    if error is None:
        return beat
    message = str(error) if isinstance(error, InvalidJob) else f"{type(error).__name__}: {error}"
    return f"{beat}{_ERROR}{quote(message[:_LONGEST])}"


def _sender(text: str) -> tuple[str, str]:
    beat, _, error = text.partition(_ERROR)
    return beat, unquote(error)


def _end(text: str) -> tuple[str, tuple[str, datetime]]:
    """Parse a line `=<tick> <state> <ms>` about the end of a tick's job: the tick, and the job's last state
    and time.
    """
    tick, state, wall = text[1:].split(" ", 2)
    return tick, (state, instant(int(wall)))
