"""The nodelist in an XML file, with its dates in SQL.

The file (node-list XML, v1 or v2) says which members there are. SQL says until when each was harvested: only there can
one transaction check a writer's fence. After each update, the file gets the committed dates; the rest of it stays.

* A process writes the file under a lock beside it, and reads the rows under that lock: a late writer writes the newest.
* A note beside the file holds the hash and the dates of what we wrote last. A file with another hash was edited or
  replaced by an operator. The dates that the operator changed go into the rows: so an edit can reset a member. Dates
  that the operator left alone may be older than the rows, and stay out.
* A crash between writing the file and the note leaves two hashes in the note, both ours.
* A file that cannot be read, say because it is half copied, is never overwritten. Meanwhile the last good one counts.
"""

import fcntl
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from sqlalchemy import Engine

from tasks import instants
from tasks.documents.atomic_file import replace
from tasks.member_node import safe_xml
from tasks.member_node.member import Member
from tasks.nodelist.harvest_dates import Rows, record_harvest, set_harvest_dates, swap_harvest_dates
from tasks.nodelist.protocol import WRITTEN, Dates
from tasks.nodelist.stores import NodelistStoreAway
from tasks.nodelist.xml_format import Parsed, parse_nodelist, put_dates, put_member, serialized

logger = logging.getLogger(__name__)

LIMIT = 64 * 1024 * 1024
Change = tuple[Member | None, Member | None]
"""A member as it is listed and as it is to be; None stands for a member that is not in the list."""


class NodelistUnreadable(NodelistStoreAway):
    """The nodelist file is missing or unreadable, and none was read before."""


class XmlNodelist:
    def __init__(self, engine: Engine, path: Path) -> None:
        self._engine, self._rows = engine, Rows(engine)
        self.path = self._path = path.resolve()
        self._noted = self._path.with_name(f".{self._path.name}.written")
        self._lock = self._path.with_name(f".{self._path.name}.lock")
        self._good: tuple[bytes, Parsed] | None = None
        self._known: tuple[bytes, dict[str, dict[str, Dates]]] = (b"", {})
        self._warned: set[str] = set()

    def members(self) -> list[Member]:
        return self._members(self._current()[1])

    def listed(self) -> tuple[list[Member], set[str], list[str]]:
        """As members(), but from the file as it is now, never from the last good one. Also the ids of bad entries, and
        a sentence about each.
        """
        found = self._settled()
        if found is None:
            raise NodelistUnreadable(f"{self._path}: no node list can be read there")
        return self._members(found[1]), found[1].bad, found[1].problems

    def _members(self, parsed: Parsed) -> list[Member]:
        rows = self._rows.read()
        return [rows.get(member.identifier, Dates()).put_on(member) for member in parsed.members]

    def member(self, member_id: str) -> Member | None:
        return next((member for member in self.members() if member.identifier == member_id), None)

    def version(self) -> str:
        """The SHA-256 of the file."""
        return _digest(self._current()[0])

    def harvested(
        self, member_id: str, dates: Dates, *, fence: int, started_from: datetime | None = None
    ) -> str | None:
        self._refresh()
        written = record_harvest(self._engine, member_id, dates.floored(), fence=fence, started_from=started_from)
        self._refresh()
        return WRITTEN if written else None

    def reset(self, member_id: str) -> None:
        if self.member(member_id) is None:
            raise KeyError(member_id)
        set_harvest_dates(self._engine, {member_id: Dates(instants.NEVER, instants.NEVER)})
        self._refresh()

    def import_file(self, path: Path) -> None:
        body = path.read_bytes()
        if not parse_nodelist(body).entries:
            raise safe_xml.Unreadable(f"{path} names no member")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked():
            replace(self._path, body)
        self._refresh()

    def write(self, changes: Mapping[str, Change]) -> dict[str, Member | None]:
        """List members as given, or no longer, with their dates: one transaction, one file. The rest of the file stays.

        Returns each member as it is then, but for those that the list no longer had as the change says: they stay.
        """
        with self._locked():
            found = self._settle()
            if found is None:
                raise NodelistUnreadable(f"{self._path}: no node list can be read there")
            parsed = found[1]
            there = {one: parsed.entries[one][1] if one in parsed.entries else None for one in changes}
            as_read = {one for one, (old, _) in changes.items() if _undated(there[one]) == _undated(old)} - parsed.bad
            moves = {one: (Dates.of(old) if old else None, Dates.of(new)) for one, (old, new) in changes.items() if new}
            as_read -= swap_harvest_dates(self._engine, {one: move for one, move in moves.items() if one in as_read})
            news = {one: changes[one][1] for one in as_read if _undated(there[one]) != _undated(changes[one][1])}
            rows = self._rows.read()
            self._good = self._written(*found, rows, news)
            listed = {one: parsed.entries[one][1] for one in as_read if one in parsed.entries}
            return {one: rows.get(one, Dates()).put_on(listed[one]) if one in listed else None for one in as_read}

    def _refresh(self) -> None:
        """Bring the file up to date. While it cannot be read, the rows alone move on: they are the truth."""
        with suppress(NodelistUnreadable):
            self._current()

    def _current(self) -> tuple[bytes, Parsed]:
        """The file, once it agrees with the rows: it takes in an operator's edit and gets the newest dates."""
        self._settled()
        if self._good is None:
            raise NodelistUnreadable(f"{self._path}: no node list can be read there")
        return self._good

    def _settled(self) -> tuple[bytes, Parsed] | None:
        """The file, once it agrees with the rows; None where it cannot be read now."""
        found = self._load()
        if found is not None and self._outdated(found[0]):
            with self._locked():
                found = self._settle()
        if found is not None:
            self._good = found
        return found

    def _load(self) -> tuple[bytes, Parsed] | None:
        """The file; None where it is no node list, after one warning."""
        try:
            with self._path.open("rb") as file:
                body = file.read(LIMIT + 1)
            if len(body) > LIMIT:
                raise safe_xml.Unreadable(f"longer than {LIMIT} bytes")
            parsed = self._good[1] if self._good and self._good[0] == body else parse_nodelist(body)
        except (OSError, safe_xml.Unreadable) as error:
            self._warn(f"nodelist {self._path} cannot be read: {error}")
            return None
        for problem in parsed.problems:
            self._warn(f"nodelist {self._path}: {problem}; left out")
        return body, parsed

    def _outdated(self, body: bytes) -> bool:
        noted = self._notes().get(_digest(body))
        rows = self._rows.read()
        return noted is None or any(rows.get(member_id, Dates()) != dates for member_id, dates in noted.items())

    def _settle(self) -> tuple[bytes, Parsed] | None:
        """Under the lock: read the file again, take in an edit, write the dates."""
        found = self._load()
        if found is None:
            return None
        notes = self._notes()
        if _digest(found[0]) not in notes:
            self._take_in(found[1], notes)
        return self._written(*found, self._rows.read(), {})

    def _written(
        self, body: bytes, parsed: Parsed, rows: Mapping[str, Dates], members: Mapping[str, Member | None]
    ) -> tuple[bytes, Parsed]:
        """Under the lock: write the file with these members changed, and with the dates of all."""
        notes = self._notes()
        before = {_digest(body): notes.get(_digest(body), parsed.dates)}
        try:
            for member_id, member in members.items():
                put_member(parsed, member_id, member)
            written = serialized(parsed.root) if put_dates(parsed, rows) or members else body
            after = {_digest(written): {member_id: rows.get(member_id, Dates()) for member_id in parsed.entries}}
            if written != body:
                replace(self._noted, _dump({**before, **after}))
                replace(self._path, written)
            if notes != after:
                replace(self._noted, _dump(after))
        except BaseException:
            self._good = body, parse_nodelist(body)  # `parsed` is no longer what the file says
            raise
        return written, parsed

    def _take_in(self, parsed: Parsed, notes: Mapping[str, Mapping[str, Dates]]) -> None:
        """Take in the dates that the operator changed since we wrote. A new file gives the dates that no row has."""
        rows = self._rows.read()
        base = next(reversed(list(notes.values())), rows)
        changed = {}
        for member_id, dates in parsed.dates.items():
            row, old = rows.get(member_id, Dates()), base.get(member_id, Dates())
            merged = Dates(
                *(
                    now if said is None or said == then or (not notes and now is not None) else said
                    for said, then, now in zip(dates, old, row, strict=True)
                )
            )
            if merged != row:
                changed[member_id] = merged
        set_harvest_dates(self._engine, changed)

    def _notes(self) -> dict[str, dict[str, Dates]]:
        """The dates in each file that we wrote, by the hash of that file; the newest comes last."""
        try:
            text = self._noted.read_bytes()
        except FileNotFoundError:
            return {}
        if text != self._known[0]:
            self._known = text, {digest: _dates_in(noted) for digest, noted in json.loads(text).items()}
        return self._known[1]

    def _warn(self, sentence: str) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            logger.warning(sentence)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _undated(member: Member | None) -> Member | None:
    return member and Dates().put_on(member)


def _dates_in(noted: Mapping[str, list[str | None]]) -> dict[str, Dates]:
    return {one: Dates(*(instants.parse(date) if date else None for date in dates)) for one, dates in noted.items()}


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _dump(notes: Mapping[str, Mapping[str, Dates]]) -> bytes:
    written = {
        digest: {member_id: [date and instants.full(date) for date in dates] for member_id, dates in of.items()}
        for digest, of in notes.items()
    }
    return json.dumps(written).encode()
