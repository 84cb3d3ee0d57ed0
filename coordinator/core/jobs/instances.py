"""Names and records of instances. An instance is a piece of work of a key that only one process or job gets (grabs).

`grabs/reader.py` reads instances from Redis. A process grabs an instance with `grabs/grab.py`; a job grabs the instance
that its submit names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, NamedTuple, cast
from urllib.parse import quote

from kombu.utils.json import loads

from coordinator.core.jobs.validation import SEPARATOR, limit, printable, stored_lane
from coordinator.core.store.reading import FieldReader, text_in
from coordinator.core.store.times import milliseconds
from coordinator.core.store.values import Json
from coordinator.errors import InvalidJob

LONGEST = 200
_GRAB = f"grab{SEPARATOR}"
_FIELDS = ("state", "fence", "attempt", "about", "started", "ended", "value")
Instance = str | int | datetime
State = Literal["", "running", "complete", "incomplete", "waiting", "failed", "abandoned", "stopped"]


class Winner(NamedTuple):
    """The process or job that won an instance. `node`: the node of a process that belongs to a worker, else "".

    `identifier`: the name under which a process grabbed the instance, or the id of a job. `host`, `pid`: of the
    process; for a job, of the process that runs the job, and "" and 0 until a node has claimed the job.
    """

    identifier: str
    host: str
    pid: int
    node: str

    @property
    def place(self) -> str:
        """Host and pid as a text for people."""
        return f"{self.host}, pid {self.pid}" if self.host else "no node yet"


@dataclass(frozen=True, slots=True)
class GrabRecord:
    """The record of an instance. `state`: running, complete, failed, abandoned, or "" before any grab.

    `winner`: the process or job that grabbed the instance last. `attempt`: how often the instance was grabbed.
    `value`: the result of the work, the reason of the failure, or the author and the reason where an operator released
    the instance. `earlier`: how the grabs of the last 10 winners before `winner` ended, the latest first.
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
        """Key and instance in one text, which the next page of a list takes as `after`."""
        return f"{quote(self.key, safe='')}/{quote(self.instance, safe='')}"


def lane_of(key: str, instance: str) -> str:
    """Return the key of the lane in Redis that stands for an instance. The key contains control characters, which the
    keys of callers may not contain, so it never equals one of them.
    """
    return f"{_GRAB}{key}{SEPARATOR}{instance}"


def is_grab(lane: str) -> bool:
    """True if this key of a lane was made by `lane_of`, so that the lane stands for an instance."""
    return lane.startswith(_GRAB)


def names_in(lane: str) -> tuple[str, str]:
    """Split the key of a lane that `lane_of` made into the key and the name of the instance."""
    _, key, name = lane.split(SEPARATOR)
    return key, name


def checked(part: str, text: object) -> str:
    """Check the key or the name of an instance, and return it as text; a datetime in ISO 8601, in UTC. Raises
    InvalidJob, which calls it `part`, unless it has 1 to 200 characters and no control character.
    """
    if isinstance(text, datetime):
        text = (text if text.tzinfo else text.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    elif isinstance(text, int) and not isinstance(text, bool):
        text = str(text)
    if not isinstance(text, str) or not printable(text) or len(text) > LONGEST or stored_lane(text) != text:
        raise InvalidJob(
            f"the {part} of a grab is text of 1 to {LONGEST} characters without control characters and ¦, not "
            f"{str(text)[:60]!r}"
        )
    return text


def checked_submit(keys: str | Sequence[str], instance: object, keep: object) -> tuple[str, str, int]:
    """Check a submit that names an instance. Return the key, the lane of the instance, and for how long (ms) the record
    of a completed instance is kept; `keep`: the same in seconds. Raises InvalidJob.
    """
    if not isinstance(keys, str) and len(keys) != 1:
        raise InvalidJob(f"an instance belongs to one key, not to {len(keys)}")
    key = checked("key", keys if isinstance(keys, str) else keys[0])
    return key, lane_of(key, checked("instance", instance)), milliseconds(limit("keep_instance", keep))


def parse_instance(key: str, name: str, reply: Sequence[bytes]) -> GrabRecord:
    """Make the record of an instance from `reply`, the fields that a step in Redis returned for it."""
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
