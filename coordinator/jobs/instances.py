"""An instance of a key: a piece of work that one process or job among all grabs, so that it is done once.

`grabs/reader.py` reads instances from Redis. A process grabs an instance with `grabs/grab.py`, a job by its submit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, NamedTuple, cast
from urllib.parse import quote

from kombu.utils.json import loads

from coordinator.errors import InvalidJob
from coordinator.jobs.validation import SEPARATOR, limit, printable, stored_lane
from coordinator.store.reading import FieldReader, text_in
from coordinator.store.times import milliseconds
from coordinator.store.values import Json

LONGEST = 200
_GRAB = f"grab{SEPARATOR}"
_FIELDS = ("state", "fence", "attempt", "about", "started", "ended", "value")
Instance = str | int | datetime
State = Literal["", "running", "complete", "incomplete", "waiting", "failed", "abandoned", "stopped"]


class Winner(NamedTuple):
    """The process that works on an instance, or did. `node`: the worker that it belongs to, or "".

    `identifier`: the name that the process gave itself; of a job, the job's id, and then host and pid are empty until a
    node has the job.
    """

    identifier: str
    host: str
    pid: int
    node: str

    @property
    def place(self) -> str:
        """Host and pid, for people."""
        return f"{self.host}, pid {self.pid}" if self.host else "no node yet"


@dataclass(frozen=True, slots=True)
class GrabRecord:
    """The record of an instance. `state`: running, complete, failed, abandoned, or "" where nobody grabbed it.

    `value`: the result, the reason of the failure, or who released it and why. `earlier`: the ends of the last 10
    winners before this one, the latest first.
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
    earlier: tuple[GrabRecord, ...] = ()

    @property
    def cursor(self) -> str:
        """Its name in one text, for `after`."""
        return f"{quote(self.key, safe='')}/{quote(self.instance, safe='')}"


def lane_of(key: str, instance: str) -> str:
    """The lane of an instance. No other lane has such a key, since the keys of callers have no control characters."""
    return f"{_GRAB}{key}{SEPARATOR}{instance}"


def is_grab(lane: str) -> bool:
    """True for a lane that `lane_of` named."""
    return lane.startswith(_GRAB)


def names_in(lane: str) -> tuple[str, str]:
    """The key and the instance of a lane that `lane_of` named."""
    _, key, name = lane.split(SEPARATOR)
    return key, name


def checked(what: str, text: object) -> str:
    """Check a name of a grab: 1 to 200 characters, none of them a control character. Writes an instant in UTC."""
    if isinstance(text, datetime):
        text = (text if text.tzinfo else text.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    elif isinstance(text, int) and not isinstance(text, bool):
        text = str(text)
    if not isinstance(text, str) or not printable(text) or len(text) > LONGEST or stored_lane(text) != text:
        raise InvalidJob(
            f"the {what} of a grab is text of 1 to {LONGEST} characters without control characters and ¦, not "
            f"{str(text)[:60]!r}"
        )
    return text


def checked_submit(keys: str | Sequence[str], instance: object, keep: object) -> tuple[str, str, int]:
    """The key and the lane of a submit with an instance, and how long (ms) its record is kept."""
    if not isinstance(keys, str) and len(keys) != 1:
        raise InvalidJob(f"an instance belongs to one key, not to {len(keys)}")
    key = checked("key", keys if isinstance(keys, str) else keys[0])
    return key, lane_of(key, checked("instance", instance)), milliseconds(limit("keep_instance", keep))


def parse_instance(key: str, name: str, reply: Sequence[bytes]) -> GrabRecord:
    """Read an instance from a step's reply."""
    known = dict(zip((*_FIELDS, "earlier"), map(text_in, reply), strict=False))
    lines = [FieldReader({"line": line}).json("line", dict) or {} for line in known.get("earlier", "").splitlines()]
    now, *before = (_grabbed(key, name, has) for has in (known, *lines))
    return replace(now, earlier=tuple(before))


def _grabbed(key: str, name: str, has: Mapping[str, str]) -> GrabRecord:
    reader = FieldReader(has)
    winner = reader.get("about", lambda about: Winner(**loads(about)), None)
    numbers = reader.get("attempt", int, 0), reader.get("fence", int, 0)
    times = reader.instant("started"), reader.instant("ended")
    return GrabRecord(key, name, cast(State, has.get("state", "")), winner, *numbers, *times, reader.json("value"))
