"""The values that the store keeps: items, events, and the failures of a report."""

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
    """The store has no such item."""

    def __init__(self, item: str) -> None:
        super().__init__(f"there is no item {item}: coordinator items lists them, coordinator items add registers one")
        self.item = item

    def __reduce__(self) -> tuple[type["UnknownItem"], tuple[str]]:
        return type(self), (self.item,)


class ItemConflict(CoordinatorError):
    """The item is not as this change needs it, and nothing was changed."""


class ItemLost(Exception):
    """Another job has begun work on the item since, or a repair changed it: nothing was stored."""

    def __init__(self, component: str, item: str, fence: int) -> None:
        super().__init__(f"{component} on {item}: fence {fence} is stale; a later job or a repair came since")
        self.component, self.item, self.fence = component, item, fence

    def __reduce__(self) -> tuple[type["ItemLost"], tuple[str, str, int]]:
        return type(self), (self.component, self.item, self.fence)


@dataclass(frozen=True, slots=True)
class Item:
    """An item as it was read. `batch` and `round_trip` are parts of its id; `priority`: 1 first to 9, None last.

    `revision` grows with each change of the item. `directory`: where its delivery lies.
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
    """A fault of an item. `file`: the file that has it; `type`: its kind, for statistics."""

    file: str
    type: str
    component: str
    description: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a component's work: the first failures, and `found`, the number of all. `node`: where it ran."""

    failures: tuple[Failure, ...] = ()
    found: int = 0
    text: str = ""
    node: str = ""

    @classmethod
    def of(cls, failures: Iterable[Failure], most: int = MOST_RESULTS, text: str = "") -> Self:
        """Keep the first `most` failures and count all. Raises TypeError for a field that is no text."""
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
        """Raises ValueError, TypeError or KeyError."""
        fields = json.loads(text)
        failures = tuple(Failure(**failure) for failure in fields["failures"])
        return cls(failures, int(fields["found"]), str(fields["text"]), str(fields.get("node", "")))


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to be stored. `attempt` names the one attempt that may store it.

    `revision_read`: the item's revision when the work began. `changed`: the work itself changed the item.
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
    """An event as it is stored. `removed`: when a repair took it out; the history keeps it.

    `revision`: the item's, with the changes that the component itself made.
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
        raise TypeError(f"a component returns failures, and {failure!r:.80} is none")
    for name in Failure.__slots__:
        value = getattr(failure, name)
        if not isinstance(value, str):
            raise TypeError(f"the {name} of a failure is a text, and {value!r:.80} is none")


def parts_of(item: str) -> tuple[str, int | None]:
    """The batch and the round trip: B400022028241-RT1 is round trip 1 of B400022028241."""
    match = _ROUND_TRIP.fullmatch(item)
    return (match["batch"], int(match["number"])) if match else (item, None)


def checked_name(what: str, name: str) -> str:
    """The name. Raises ValueError where no key of a lane can hold it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{what} {name!r}: give 1 to 200 characters without control characters")
    try:
        length = len(name.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} {name!a} is no text: {error.reason}") from error
    if length > LONGEST_NAME:
        raise ValueError(f"{what} {name[:40]!r}… has {length} bytes; at most {LONGEST_NAME}")
    return name


def rank_of(priority: int | None) -> int:
    if priority is None:
        return NO_PRIORITY
    if not isinstance(priority, int) or isinstance(priority, bool) or not 1 <= priority <= 9:
        raise ValueError(f"priority {priority!r}: 1 goes first, 9 last, and none goes after 9")
    return priority
