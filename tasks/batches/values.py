"""The types of the store's values: items, events, reports and failures."""

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Self

from coordinator import CoordinatorError
from coordinator.extending import REFUSED_CHARACTERS

RECEIVED = "Data_Received"
STOPPED = "Manually_stopped"
FLAGGED = "Manual_QA_Flagged"
APPROVED = "Roundtrip_Approved"

NO_PRIORITY = 10
MOST_RESULTS = 1000

_ROUND_TRIP = re.compile(r"(?P<batch>.+)-RT(?P<number>[0-9]{1,9})")
_NAME = re.compile(rf"[^{REFUSED_CHARACTERS}]{{1,200}}")
LONGEST_NAME = 200


class UnknownItem(CoordinatorError, LookupError):
    """The store has no item with the id `item`."""

    def __init__(self, item: str) -> None:
        super().__init__(f"there is no item {item}: coordinator items lists them, coordinator items add registers one")
        self.item = item

    def __reduce__(self) -> tuple[type["UnknownItem"], tuple[str]]:
        return type(self), (self.item,)


class ItemConflict(CoordinatorError):
    """Refuses a change that the state of an item does not allow. The store has changed nothing."""


class ItemLost(Exception):
    """Refuses a job's event: a later job has begun work on the item, or an operator has repaired the item."""

    def __init__(self, component: str, item: str, fence: int) -> None:
        super().__init__(
            f"{component} on {item}: fence {fence} is stale; a later job has begun, or an operator repaired the item"
        )
        self.component, self.item, self.fence = component, item, fence

    def __reduce__(self) -> tuple[type["ItemLost"], tuple[str, str, int]]:
        return type(self), (self.component, self.item, self.fence)


@dataclass(frozen=True, slots=True)
class Item:
    """A thing that components work on, such as a delivered batch. `batch`, `round_trip`: the parts of its id.

    `priority`: from 1 (first) to 9, or None (last). `directory`: where the item's files are. `revision`: grows with
    each change of the item's content.
    """

    id: str
    batch: str
    round_trip: int | None
    type: str
    priority: int | None
    directory: str | None
    registered: datetime
    modified: datetime
    revision: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A fault that a component found in an item. `file`: the file with the fault. `type`: a name for statistics."""

    file: str
    type: str
    component: str
    description: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a component's work on an item. `failures`: the first ones; `found`: how many there were in all.

    `text`: what the component said. `node`: the name of the node where the component ran.
    """

    failures: tuple[Failure, ...] = ()
    found: int = 0
    text: str = ""
    node: str = ""

    @classmethod
    def of(cls, failures: Iterable[Failure], most: int = MOST_RESULTS, text: str = "") -> Self:
        """Make a report that keeps the first `most` failures and counts all.

        Raises TypeError for a value that is no Failure, or has a field that is not a string.
        """
        kept: list[Failure] = []
        found = 0
        for found, failure in enumerate(failures, 1):
            _check(failure)
            if found <= most:
                kept.append(failure)
        return cls(tuple(kept), found, text)

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a report from the JSON that `to_json` wrote. Raises ValueError, TypeError or KeyError for other text."""
        fields = json.loads(text)
        failures = tuple(Failure(**failure) for failure in fields["failures"])
        return cls(failures, int(fields["found"]), str(fields["text"]), str(fields.get("node", "")))


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to be stored. `attempt`: the id of the attempt that stores it; an attempt stores one event at most.

    `component`, `version`: those that did the work. `revision_read`: the item's revision when the work began.
    `changed`: the work changed the item itself, so that storing the event increases the item's revision.
    """

    item: str
    type: str
    success: bool
    component: str
    version: str
    attempt: str
    fence: int
    revision_read: int
    started: datetime
    ended: datetime
    report: Report = field(default_factory=Report)
    changed: bool = False


@dataclass(frozen=True, slots=True)
class ItemEvent:
    """A stored event of an item. `agent`: the component and its version, or the operator.

    `revision_read`: the item's revision when the work began. `revision`: the same, or 1 more if the work, and nothing
    else, changed the item. `removed`: when an operator's repair removed the event; None: the event counts.
    """

    id: str
    item: str
    type: str
    success: bool
    agent: str
    attempt: str
    fence: int
    revision_read: int
    revision: int
    started: datetime
    ended: datetime
    report: Report
    removed: datetime | None
    removed_by: str | None
    removed_why: str | None


def _check(failure: Failure) -> None:
    if not isinstance(failure, Failure):
        raise TypeError(f"a component returns failures, not {failure!r:.80}")
    for name in Failure.__slots__:
        value = getattr(failure, name)
        if not isinstance(value, str):
            raise TypeError(f"the {name} of a failure is a text, not {value!r:.80}")


def parts_of(item: str) -> tuple[str, int | None]:
    """Split an item's id into the batch and the number of the round trip: B1-RT2 into B1 and 2. None: no round trip."""
    match = _ROUND_TRIP.fullmatch(item)
    return (match["batch"], int(match["number"])) if match else (item, None)


def checked_name(what: str, name: str) -> str:
    """Return `name`. Raises ValueError, with `what` in its message, if the name cannot be part of a lane's key."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{what} {name!r}: give 1 to 200 characters without control characters")
    try:
        length = len(name.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} {name!a} cannot be encoded as UTF-8: {error.reason}") from error
    if length > LONGEST_NAME:
        raise ValueError(f"{what} {name[:40]!r}… has {length} bytes; at most {LONGEST_NAME}")
    return name


def rank_of(priority: int | None) -> int:
    """Return the number by which items are sorted: the priority, or 10 for None. Raises ValueError."""
    if priority is None:
        return NO_PRIORITY
    if not isinstance(priority, int) or isinstance(priority, bool) or not 1 <= priority <= 9:
        raise ValueError(f"priority {priority!r} is not within 1 (first) to 9 (last), or none")
    return priority
