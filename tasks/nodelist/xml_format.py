"""Reads and writes the node-list document, DataONE's XML of all members, and changes members in a parsed document."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from lxml import etree
from pydantic import ValidationError

from tasks import instants
from tasks.member_node import safe_xml
from tasks.member_node.member import NAMESPACES, Member, Version
from tasks.nodelist.protocol import Dates

KNOWN = frozenset(
    {"identifier", "name", "description", "baseURL", "services", "synchronization", "nodeReplicationPolicy", "ping"}
    | {"subject", "contactSubject", "property"}
)
SHOWN = 5  # most problems that a message names about a file without any valid member


class Parsed(NamedTuple):
    root: etree._Element
    entries: dict[str, tuple[etree._Element, Member]]
    problems: list[str]
    bad: set[str]
    """The ids of members whose entries are invalid."""

    @property
    def members(self) -> list[Member]:
        return [member for _, member in self.entries.values()]


def parse_nodelist(body: bytes) -> Parsed:
    """Parse a node-list document: its members with their elements, and a sentence about each invalid entry.

    Raises safe_xml.Unreadable for a document that is not a node list.
    """
    root = safe_xml.parse(body, whole=True)
    if root.tag not in {f"{{{namespace}}}nodeList" for namespace in NAMESPACES.values()}:
        known = " or ".join(NAMESPACES.values())
        raise safe_xml.Unreadable(f"its root is no nodeList of {known} but {str(root.tag)[:200]}")
    parsed, bad = Parsed(root, {}, [], set()), set()
    for position, node in enumerate(root.findall("node"), start=1):
        bare = safe_xml.bare(node)
        named = (safe_xml.value(bare, "identifier") or "").strip()
        label = f"entry {position} ({named[:80] or 'no identifier'})"
        try:
            member = Member.from_xml(bare)
        except ValidationError as error:
            wrong = (f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
            parsed.problems.append(f"{label}: {'; '.join(wrong)}")
            bad.add(named)
            continue
        if member.identifier in parsed.entries:
            parsed.problems.append(f"{label}: an entry above has the same identifier")
        else:
            parsed.entries[member.identifier] = (node, member)
    parsed.bad.update(bad - parsed.entries.keys() - {""})
    return parsed


def write_nodelist(members: Iterable[Member], version: Version = "v2") -> bytes:
    root = etree.Element(f"{{{NAMESPACES[version]}}}nodeList", nsmap={"d1": NAMESPACES[version]})
    root.extend([member.to_xml(version) for member in members])
    etree.indent(root)
    return serialized(root)


def read_nodelist(path: Path) -> Parsed:
    """Read a node-list document, to import it. Raises safe_xml.Unreadable, also if there is no valid member in it."""
    parsed = parse_nodelist(path.read_bytes())
    if not parsed.entries:
        unread = "".join(f"; {problem}" for problem in parsed.problems[:SHOWN])
        more = f"; and {len(parsed.problems) - SHOWN} more" if len(parsed.problems) > SHOWN else ""
        raise safe_xml.Unreadable(f"{path} names no member that can be understood{unread}{more}")
    return parsed


def put_dates(parsed: Parsed, member_id: str, dates: Dates) -> bool:
    """Change a member's harvest dates in a parsed document; None leaves a date. Returns False if nothing changed."""
    node, member = parsed.entries[member_id]
    old, times = Dates.of(member), node.find("synchronization")
    new = dates.or_else(old)
    if new == old or times is None:  # without an element `synchronization` there is no place for dates
        return False
    for tag, before, after in zip(("lastHarvested", "lastCompleteHarvest"), old, new, strict=True):
        if after is not None and after != before:
            _place(times, tag).text = instants.full(after) if after.microsecond % 1000 else instants.brief(after)
    parsed.entries[member_id] = node, new.put_on(member)
    return True


def put_member(parsed: Parsed, member_id: str, member: Member | None) -> bool:
    """Replace or append a member's entry in a parsed document; None removes it. Returns False if nothing changed.

    Elements that this program does not know stay in the entry. If only dates change, the rest stays as it is written.
    """
    node, old = parsed.entries.get(member_id, (None, None))
    if old is not None and member is not None and Dates().put_on(old) == Dates().put_on(member):
        return put_dates(parsed, member_id, Dates.of(member))
    if node is not None and member is None:
        parsed.root.remove(node)
        del parsed.entries[member_id]
    elif member is not None:
        version: Version = "v1" if parsed.root.tag == f"{{{NAMESPACES['v1']}}}nodeList" else "v2"
        parsed.entries[member_id] = _put(parsed.root, node, member.to_xml(version))
    return old != member


def _put(root: etree._Element, old: etree._Element | None, new: etree._Element) -> tuple[etree._Element, Member]:
    """Replace the element `old` of a member by `new`, which gets its unknown parts; None: append `new` to the list."""
    new.tail = "\n"
    if old is None:
        root.append(new)
    else:
        new.extend([child for child in old if child.tag not in KNOWN])
        new.attrib.update({name: text for name, text in old.attrib.items() if name not in new.attrib})
        new.tail = old.tail
        root.replace(old, new)
    return new, Member.from_xml(new)


def _place(times: etree._Element, tag: str) -> etree._Element:
    """Find or make the element `tag` for a date in `times`, in the schema's order: schedule, lastHarvested, …"""
    child = times.find(tag)
    if child is not None:
        del child[:]  # removes comments, which would divide the new text
        return child
    new = etree.Element(tag)
    later = times.find("lastCompleteHarvest")
    if tag == "lastHarvested" and later is not None:
        new.tail = times.text
        later.addprevious(new)
    else:
        if len(times):
            new.tail, times[-1].tail = times[-1].tail, times.text
        times.append(new)
    return new


def serialized(root: etree._Element) -> bytes:
    body = etree.tostring(root.getroottree(), encoding="UTF-8", xml_declaration=False)
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + body + b"\n"
