"""The nodelist: which members there are, and until when each was harvested.

The document (node-list XML, v1 or v2) says which members there are; SQL says until when each was harvested, because
only there can a late writer be told from the lawful one, by its fence, in the same transaction. After each update the
document is rewritten from the committed rows, everything else in it untouched.

* Writing goes under a lock beside the document, and reads the rows only then: a late writer writes the newest.
* Beside the document stands what we wrote last: its hash and its dates. A document with another hash was edited or
  replaced by an operator. The dates that he changed go into the rows (that is how a member is reset by hand); the
  dates that he left alone may be older than the rows, and stay out.
* A crash between writing the document and noting so leaves two hashes noted, both ours.
* A document that cannot be read, half copied say, is never overwritten; the last one that could be is used meanwhile.
"""

import fcntl
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Protocol

from sqlalchemy import Engine

from coordinator.durable import replace
from tasks import documents, instants
from tasks.catalog import (
    Dates,
    StaleFence,
    harvest_dates,
    record_harvest,
    set_harvest_dates,
    swap_harvest_dates,
)
from tasks.member import Member
from tasks.nodelistxml import Parsed, parse_nodelist, with_dates, with_member, write_nodelist
from tasks.sources import WRITTEN, SourceAway

__all__ = ["Member", "Nodelist", "NodelistUnreadable", "StaleFence", "XmlNodelist", "parse_nodelist", "write_nodelist"]

logger = logging.getLogger(__name__)

LIMIT = 64 * 1024 * 1024


class NodelistUnreadable(SourceAway):
    """There is no nodelist, or it is not one, and none was read before."""


class Nodelist(Protocol):
    """What a synchronization needs to know of its federation."""

    def members(self) -> list[Member]: ...

    def member(self, node_id: str) -> Member | None: ...

    def version(self) -> str:
        """Another one as soon as anything in the list is."""
        ...

    def harvested(self, node_id: str, dates: Dates, *, fence: int, started_from: datetime | None = None) -> str | None:
        """Move a member's dates forward; never back. Raises StaleFence when a greater fence was seen.

        Returns WRITTEN, or why the permanent store does not have them yet. `started_from` is the last_harvested that
        the run began with: where the list says otherwise by now, an operator has reset the member meanwhile, nothing is
        written, and the answer is None.
        """
        ...

    def import_file(self, path: Path) -> None:
        """Replace the list by that of a document; dates that it does not name stay."""
        ...


class XmlNodelist:
    """The nodelist in a file, with its dates in SQL."""

    def __init__(self, engine: Engine, path: Path) -> None:
        self._engine = engine
        self.path = self._path = path.resolve()
        self._noted = self._path.with_name(f".{self._path.name}.written")
        self._lock = self._path.with_name(f".{self._path.name}.lock")
        self._good: tuple[bytes, Parsed] | None = None
        self._warned: set[str] = set()

    def members(self) -> list[Member]:
        return self._members(self._current()[1])

    def listed(self) -> tuple[list[Member], set[str]]:
        """As members(), but of the document as it is now, not of the last good one; and the ids of bad entries."""
        found = self._settled()
        if found is None:
            raise NodelistUnreadable(f"{self._path}: no node list can be read there")
        return self._members(found[1]), found[1].bad

    def _members(self, parsed: Parsed) -> list[Member]:
        rows = harvest_dates(self._engine)
        return [_dated(member, rows.get(member.identifier, Dates())) for member in parsed.members]

    def member(self, node_id: str) -> Member | None:
        return next((member for member in self.members() if member.identifier == node_id), None)

    def version(self) -> str:
        """The SHA-256 of the document."""
        return _digest(self._current()[0])

    def harvested(self, node_id: str, dates: Dates, *, fence: int, started_from: datetime | None = None) -> str | None:
        self._refresh()
        floored = Dates(*(None if date is None else instants.floor(date) for date in dates))
        written = record_harvest(self._engine, node_id, floored, fence=fence, started_from=started_from)
        self._refresh()
        return WRITTEN if written else None

    def reset(self, node_id: str) -> None:
        if self.member(node_id) is None:
            raise KeyError(node_id)
        set_harvest_dates(self._engine, {node_id: Dates(instants.NEVER, instants.NEVER)})
        self._refresh()

    def import_file(self, path: Path) -> None:
        body = path.read_bytes()
        if not parse_nodelist(body).entries:
            raise documents.Unreadable(f"{path} names no member")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked():
            replace(self._path, body)
        self._refresh()

    def put(self, node_id: str, old: Member | None, member: Member | None) -> bool:
        """Have the document list a member as it is given, or no more. What it says else stays.

        False, and nothing is written, where it is not the old one any more, its dates aside.
        """
        with self._locked():
            found = self._load()
            if found is None:
                raise NodelistUnreadable(f"{self._path}: no node list can be read there")
            there = found[1].entries.get(node_id)
            if node_id in found[1].bad or _undated(there and there[1]) != _undated(old):
                return False
            replace(self._path, with_member(found[0], node_id, member))
        self._refresh()
        return True

    def set_dates(self, node_id: str, old: Dates | None, new: Dates) -> bool:
        """False, and nothing is written, where they are not the old ones any more (None: whatever they are)."""
        if old is None:
            set_harvest_dates(self._engine, {node_id: new})
        elif old != new and not swap_harvest_dates(self._engine, node_id, old, new):
            return False
        self._refresh()
        return True

    def _refresh(self) -> None:
        """The rows are the truth and may move on while the document cannot be read: it is written when it can be."""
        with suppress(NodelistUnreadable):
            self._current()

    def _current(self) -> tuple[bytes, Parsed]:
        """The document as the rows have it: an operator's edit taken in, what is outdated rewritten."""
        self._settled()
        if self._good is None:
            raise NodelistUnreadable(f"{self._path}: no node list can be read there")
        return self._good

    def _settled(self) -> tuple[bytes, Parsed] | None:
        """None where it cannot be read now."""
        found = self._load()
        if found is not None and self._outdated(found[0]):
            with self._locked():
                found = self._settle()
        if found is not None:
            self._good = found
        return found

    def _load(self) -> tuple[bytes, Parsed] | None:
        """The document where it is one; else None, after one warning."""
        try:
            with self._path.open("rb") as file:
                body = file.read(LIMIT + 1)
            if len(body) > LIMIT:
                raise documents.Unreadable(f"longer than {LIMIT} bytes")
            parsed = self._good[1] if self._good and self._good[0] == body else parse_nodelist(body)
        except (OSError, documents.Unreadable) as error:
            self._warn(f"nodelist {self._path} cannot be read: {error}")
            return None
        for problem in parsed.problems:
            self._warn(f"nodelist {self._path}: {problem}; left out")
        return body, parsed

    def _outdated(self, body: bytes) -> bool:
        noted = self._notes().get(_digest(body))
        rows = harvest_dates(self._engine)
        return noted is None or any(rows.get(node_id, Dates()) != dates for node_id, dates in noted.items())

    def _settle(self) -> tuple[bytes, Parsed] | None:
        """Under the lock: read again, take in, write."""
        found = self._load()
        if found is None:
            return None
        (body, parsed), notes = found, self._notes()
        if _digest(body) not in notes:
            self._take_in(parsed, notes)
        rows = harvest_dates(self._engine)
        written = with_dates(body, rows)
        after = {_digest(written): {node_id: rows.get(node_id, Dates()) for node_id in parsed.entries}}
        if written != body:
            before = {_digest(body): notes.get(_digest(body), parsed.dates)}
            replace(self._noted, _dump({**before, **after}))
            replace(self._path, written)
        replace(self._noted, _dump(after))
        return written, parse_nodelist(written)

    def _take_in(self, parsed: Parsed, notes: Mapping[str, Mapping[str, Dates]]) -> None:
        """Only what the operator changed since we wrote; of a document that is new to us, what no row says yet."""
        rows = harvest_dates(self._engine)
        base = next(reversed(list(notes.values())), rows)
        changed = {}
        for node_id, dates in parsed.dates.items():
            row, old = rows.get(node_id, Dates()), base.get(node_id, Dates())
            merged = Dates(
                *(
                    now if said is None or said == then or (not notes and now is not None) else said
                    for said, then, now in zip(dates, old, row, strict=True)
                )
            )
            if merged != row:
                changed[node_id] = merged
        set_harvest_dates(self._engine, changed)

    def _notes(self) -> dict[str, dict[str, Dates]]:
        """By the hash of a document that we wrote, the dates we wrote it for; the newest last."""
        try:
            noted = json.loads(self._noted.read_bytes())
        except FileNotFoundError:
            return {}
        return {
            digest: {
                node_id: Dates(*(date and instants.parse(date) for date in dates)) for node_id, dates in of.items()
            }
            for digest, of in noted.items()
        }

    def _warn(self, sentence: str) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            logger.warning(sentence)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _dated(member: Member, dates: Dates) -> Member:
    return member.model_copy(
        update={"last_harvested": dates.last_harvested, "last_complete_harvest": dates.last_complete}
    )


def _undated(member: Member | None) -> Member | None:
    return member and _dated(member, Dates())


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _dump(notes: Mapping[str, Mapping[str, Dates]]) -> bytes:
    written = {
        digest: {node_id: [date and instants.full(date) for date in dates] for node_id, dates in of.items()}
        for digest, of in notes.items()
    }
    return json.dumps(written).encode()
