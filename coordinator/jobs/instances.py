"""An instance of a key: a piece of work that one process or job among all grabs, and that is done once.

`lanes/grabs.py` reads instances from Redis. A process grabs one by `lanes/grab.py`, and a job by its submit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from kombu.utils.json import loads

from coordinator.errors import InvalidJob
from coordinator.jobs.validation import limit, printable
from coordinator.store.times import instant, milliseconds
from coordinator.store.values import Json

LONGEST = 200
Instance = str | int | datetime
State = Literal["", "running", "complete", "incomplete", "waiting", "failed", "abandoned", "stopped"]


class Winner(NamedTuple):
    """The process that works on an instance, or did. `node`: the worker that it belongs to, or "".

    `identifier`: as it called itself; that of a job is the job's id. Host and pid are empty until a node has the job.
    """

    identifier: str
    host: str
    pid: int
    node: str

    @property
    def place(self) -> str:
        """The process as people write it."""
        return f"{self.host}, pid {self.pid}" if self.host else "no node yet"


@dataclass(frozen=True, slots=True)
class Grabbed:
    """An instance as Redis has it. `state`: running, complete, failed, abandoned, or "" where nobody grabbed it.

    `value`: the result, or the reason of the failure.
    """

    key: str
    instance: str
    state: State
    winner: Winner | None = None
    attempt: int = 0
    fence: int = 0
    started: datetime | None = None
    ended: datetime | None = None
    value: Json = None


def lane_of(key: str, instance: str) -> str:
    """The lane of an instance. No other lane has such a key, since callers' keys have no control characters."""
    return f"grab\x1f{key}\x1f{instance}"


def names_in(lane: str) -> tuple[str, str]:
    """The key and the instance of such a lane."""
    _, key, name = lane.split("\x1f")
    return key, name


def shown_lane(key: str) -> str:
    """A lane's key for people."""
    return key.replace("\x1f", " ")


def checked(what: str, text: object) -> str:
    """A name of a grab: 1 to 200 characters, none of them a control character. An instant is written in UTC."""
    if isinstance(text, datetime):
        text = (text if text.tzinfo else text.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    elif isinstance(text, int) and not isinstance(text, bool):
        text = str(text)
    if not isinstance(text, str) or not printable(text) or len(text) > LONGEST:
        raise InvalidJob(
            f"the {what} of a grab is text of 1 to {LONGEST} characters without control characters, not "
            f"{str(text)[:60]!r}"
        )
    return text


def checked_submit(keys: str | Sequence[str], given: object, keep: object) -> tuple[str, str, int]:
    """The key and the lane of a submit with an instance, and how long (ms) its record is kept."""
    if not isinstance(keys, str) and len(keys) != 1:
        raise InvalidJob(f"an instance belongs to one key, not to {len(keys)}")
    key = checked("key", keys if isinstance(keys, str) else keys[0])
    return key, lane_of(key, checked("instance", given)), milliseconds(limit("keep", keep))


def found(key: str, name: str, reply: Sequence[bytes]) -> Grabbed:
    """An instance as a step tells it."""
    state, fence, attempt, about, started, ended, value = (part.decode() for part in reply)
    winner = Winner(**loads(about)) if about else None
    times = instant(float(started)) if started else None, instant(float(ended)) if ended else None
    shown: State = state  # type: ignore[assignment]
    return Grabbed(
        key, name, shown, winner, int(attempt or 0), int(fence or 0), *times, loads(value) if value else None
    )
