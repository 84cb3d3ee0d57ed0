"""The permanent store of the nodelist in an XML file, a node-list document of v1 or v2. All its members are approved.

* A process changes the file under a lock (a second file beside it), and leaves unknown parts as they are.
* It changes a member only if the member has not changed since the writer read it. So no edit of an operator is lost.
* A file that cannot be read, say because it is half copied, is never overwritten, except by an import.
"""

import fcntl
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from tasks.documents.atomic_file import replace
from tasks.member_node import safe_xml
from tasks.nodelist.protocol import Dates
from tasks.nodelist.stores import (
    Listed,
    NodelistStoreAway,
    NodelistStoreRefused,
    Outdated,
    State,
    StoredMembers,
    Write,
    WriteOutcome,
)
from tasks.nodelist.xml_format import Parsed, parse_nodelist, put_dates, put_member, read_nodelist, serialized


class NodelistUnreadable(NodelistStoreAway):
    """Raised where the file of the nodelist is missing, or is not a node-list document."""


class XmlStore:
    """Keeps the members in a file. It has no place for the approval: a suspended member stays in the file as it is."""

    keeps_approval, at_once = False, 1000

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.name = str(self.path)
        self._last: tuple[bytes, Parsed] | None = None

    def identity(self) -> str:
        """A random id in the lock file, made by the first call: that file stays when the document is replaced."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._locked() as lock:
                if not (known := lock.read()):
                    lock.write(known := uuid.uuid4().hex)
        except OSError as error:
            raise NodelistStoreAway(f"{self.name}: {error}") from error
        return known

    def read(self) -> StoredMembers:
        parsed = self._parsed()
        states = {member.identifier: State(Listed(member=member)) for member in parsed.members}
        return StoredMembers(states, frozenset(parsed.bad), tuple(parsed.problems))

    def read_one(self, member_id: str) -> State | None:
        members = self.read()
        if member_id in members.bad:
            raise NodelistStoreRefused(f"{self.name}: the entry of {member_id} cannot be understood")
        return members.states.get(member_id)

    def write(self, writes: Mapping[str, Write]) -> dict[str, WriteOutcome]:
        try:
            with self._locked():
                parsed, self._last = self._parsed(), None  # no cache: `parsed` is changed before the file is written
                as_read = {name: write for name, write in writes.items() if _is_as_read(parsed, name, write)}
                wanted = {name: write.wanted.member if write.wanted else None for name, write in as_read.items()}
                changes = [put_member(parsed, name, member) for name, member in wanted.items()]
                if any(changes):
                    body = serialized(parsed.root)
                    replace(self.path, body)
                    self._last = body, parsed
        except OSError as error:
            raise NodelistStoreAway(f"{self.name}: {error}") from error
        return {name: _state(parsed, name) if name in as_read else Outdated(name) for name in writes}

    def replacement(self, path: Path) -> None:
        """Replace the file by the document at `path`, with the old harvest dates where that has none.

        Raises safe_xml.Unreadable for the document.
        """
        parsed = read_nodelist(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked():
            with suppress(NodelistUnreadable):
                for member_id, (_, old) in self._parsed().entries.items():
                    if member_id in parsed.entries:
                        new = Dates.of(parsed.entries[member_id][1])
                        put_dates(parsed, member_id, new.or_else(Dates.of(old)))
            replace(self.path, serialized(parsed.root))

    def _parsed(self) -> Parsed:
        """Parse the file, or return the last result if the file is the same. Raises NodelistUnreadable."""
        try:
            body = self.path.read_bytes()
            if self._last is None or self._last[0] != body:
                self._last = body, parse_nodelist(body)
        except (OSError, safe_xml.Unreadable) as error:
            why, give = getattr(error, "strerror", None) or error, "coordinator nodelist import FILE --why …"
            raise NodelistUnreadable(
                f"{self.name}: no node list can be read there: {why}. To give one: {give}"
            ) from error
        return self._last[1]

    @contextmanager
    def _locked(self) -> Iterator[TextIO]:
        with self.path.with_name(f".{self.path.name}.lock").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            yield file


def _is_as_read(parsed: Parsed, member_id: str, write: Write) -> bool:
    there = parsed.entries[member_id][1] if member_id in parsed.entries else None
    return member_id not in parsed.bad and there == (write.base and write.base.listed.member)


def _state(parsed: Parsed, member_id: str) -> State | None:
    return State(Listed(member=parsed.entries[member_id][1])) if member_id in parsed.entries else None
