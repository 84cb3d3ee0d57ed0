"""Parses a member's answers about its objects: listings, and the system metadata of an object."""

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from lxml import etree

from tasks import instants
from tasks.member_node import safe_xml
from tasks.member_node.safe_xml import Spoilt, Unreadable

GREATEST = 2**63 - 1
"""The greatest integer that a database column holds. DataONE's schema would allow numbers twice as large."""


class ListedObject(NamedTuple):
    """An object in a listing. `modified`: the object's date. `entry`: a checksum of the rest (`entry_of`)."""

    pid: str
    modified: datetime
    entry: str


class UnreadableEntry(NamedTuple):
    """An entry of a listing that cannot be parsed, and why. `pid`: the object's; empty: the entry has no pid."""

    pid: str
    reason: str


class SpoiltListing(Unreadable):
    """A listing that is invalid XML after its root. `total`: the number of matching objects, which the root gives."""

    def __init__(self, reason: str, total: int) -> None:
        super().__init__(reason)
        self.total = total


class Listing(NamedTuple):
    """One page of a listing. `total`: the number of all objects that match the request, by the member's count.

    `unreadable`: entries that cannot be parsed.
    """

    entries: list[ListedObject]
    total: int
    unreadable: tuple[UnreadableEntry, ...] = ()

    @property
    def number(self) -> int:
        return len(self.entries) + len(self.unreadable)


class SystemMetadata(NamedTuple):
    pid: str
    modified: datetime
    format_id: str
    size: int
    checksum: str
    algorithm: str
    serial_version: int | None
    archived: bool
    obsoletes: str | None
    obsoleted_by: str | None
    document: bytes


def read_listing(chunks: Iterable[bytes]) -> Listing:
    """Parse a listing from the chunks of its XML. Unreadable entries are set apart, and do not spoil the others.

    Raises Unreadable for anything else that is wrong; SpoiltListing where an entry is invalid XML.
    """
    totals: list[int] = []
    entries: list[ListedObject] = []
    unreadable: list[UnreadableEntry] = []

    def root(element: etree._Element) -> None:
        _expect(element, "objectList")
        totals.append(_number(element.get("total"), "total"))

    try:
        for info in safe_xml.stream(chunks, root=root, tag="objectInfo"):
            try:
                entries.append(_listed(info))
            except Unreadable as error:
                unreadable.append(UnreadableEntry((safe_xml.value(info, "identifier") or "").strip(), str(error)))
    except Spoilt as error:
        if not totals:
            raise
        raise SpoiltListing(str(error), totals[0]) from error
    return Listing(entries, totals[0], tuple(unreadable))


def read_system_metadata(body: bytes, pid: str) -> SystemMetadata:
    """Parse the system metadata of the object `pid`. Raises Unreadable, also for the metadata of another object."""
    root = safe_xml.parse(body)
    _expect(root, "systemMetadata")
    if safe_xml.text(root, "identifier") != pid.strip():
        raise Unreadable(f"system metadata of another object, {safe_xml.text(root, 'identifier')[:200]!r}")
    checksum = root.find("checksum")
    version = safe_xml.value(root, "serialVersion")
    return SystemMetadata(
        pid=pid,
        modified=_date(root, "dateSysMetadataModified"),
        format_id=safe_xml.text(root, "formatId"),
        size=_number(safe_xml.value(root, "size"), "size"),
        checksum=safe_xml.text(root, "checksum"),
        algorithm="" if checksum is None else checksum.get("algorithm", ""),
        serial_version=None if version is None else _number(version, "serialVersion"),
        archived=(safe_xml.value(root, "archived") or "").strip() in ("true", "1"),
        obsoletes=safe_xml.value(root, "obsoletes"),
        obsoleted_by=safe_xml.value(root, "obsoletedBy"),
        document=body,
    )


def entry_of(format_id: str, size: str, checksum: str, algorithm: str) -> str:
    """A checksum of what a listing says about an object besides its pid and date, to notice an object replaced."""
    text = "\n".join((format_id.strip(), size.strip(), checksum.strip().lower(), algorithm.strip().upper()))
    return hashlib.blake2s(text.encode(), digest_size=8).hexdigest()


def _listed(info: etree._Element) -> ListedObject:
    pid, modified = safe_xml.text(info, "identifier"), _date(info, "dateSysMetadataModified")
    format_id, size = (info.findtext(name) or "" for name in ("formatId", "size"))
    checksum = info.find("checksum")
    checksum_and_algorithm = ("", "") if checksum is None else (checksum.text or "", checksum.get("algorithm", ""))
    return ListedObject(pid, modified, entry_of(format_id, size, *checksum_and_algorithm))


def _expect(root: etree._Element, name: str) -> None:
    if etree.QName(root).localname != name:
        raise Unreadable(f"not {name} but {str(root.tag)[:200]}")


def _number(value: str | None, name: str) -> int:
    text = (value or "").strip()
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > GREATEST:
        raise Unreadable(f"{name} is not a valid number: {text[:40]!r}")
    return int(text)


def _date(element: etree._Element, path: str) -> datetime:
    try:
        return instants.parse(safe_xml.text(element, path))
    except Unreadable:
        raise
    except ValueError as error:
        raise Unreadable(f"{path} is {error}") from error
