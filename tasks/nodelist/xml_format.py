"""The node-list document: XML to members and back. It can also set dates or replace members in one."""

from collections.abc import Iterable, Mapping
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


class Parsed(NamedTuple):
    root: etree._Element
    entries: dict[str, tuple[etree._Element, Member]]
    problems: list[str]
    bad: set[str]
    """Identifiers whose entries cannot be understood."""

    @property
    def members(self) -> list[Member]:
        return [member for _, member in self.entries.values()]

    @property
    def dates(self) -> dict[str, Dates]:
        return {member.identifier: Dates.of(member) for member in self.members}


def parse_nodelist(body: bytes) -> Parsed:
    """Members beside their elements, and a sentence about each bad entry. Raises safe_xml.Unreadable."""
    root = safe_xml.parse(body)
    if root.tag not in {f"{{{namespace}}}nodeList" for namespace in NAMESPACES.values()}:
        raise safe_xml.Unreadable(f"its root is no nodeList but {str(root.tag)[:200]}")
    parsed, bad = Parsed(root, {}, [], set()), set()
    for position, node in enumerate(root.findall("node"), start=1):
        label = f"entry {position} ({(node.findtext('identifier') or 'no identifier').strip()[:80]})"
        try:
            member = Member.from_xml(node)
        except ValidationError as error:
            wrong = (f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
            parsed.problems.append(f"{label}: {'; '.join(wrong)}")
            bad.add((node.findtext("identifier") or "").strip())
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


def put_dates(parsed: Parsed, dates: Mapping[str, Dates]) -> bool:
    """Give the members these dates. False: they had them already, and nothing is changed."""
    changed = False
    for member_id, (node, member) in parsed.entries.items():
        new = dates.get(member_id)
        if new is None or new == Dates.of(member):
            continue
        times = node.find("synchronization")
        if times is None:
            continue  # without a schedule there is no place for dates either
        for tag, before, after in zip(("lastHarvested", "lastCompleteHarvest"), Dates.of(member), new, strict=True):
            if after is not None and after != before:
                _place(times, tag).text = instants.full(after) if after.microsecond % 1000 else instants.brief(after)
                changed = True
        parsed.entries[member_id] = node, new.or_else(Dates.of(member)).put_on(member)
    return changed


def put_member(parsed: Parsed, member_id: str, member: Member | None) -> None:
    """Replace this member's entry, or add one at the end; None removes it.

    Parts of an entry that we do not know stay in it.
    """
    version: Version = "v1" if parsed.root.tag == f"{{{NAMESPACES['v1']}}}nodeList" else "v2"
    old = parsed.entries[member_id][0] if member_id in parsed.entries else None
    if member is None:
        if old is not None:
            parsed.root.remove(old)
            del parsed.entries[member_id]
        return
    new = member.to_xml(version)
    new.tail = "\n"
    if old is None:
        parsed.root.append(new)
    else:
        new.extend([child for child in old if child.tag not in KNOWN])
        new.attrib.update({name: text for name, text in old.attrib.items() if name not in new.attrib})
        new.tail = old.tail
        parsed.root.replace(old, new)
    parsed.entries[member_id] = new, Member.from_xml(new)


def _place(times: etree._Element, tag: str) -> etree._Element:
    """The element, in the place that the schema asks for: schedule, lastHarvested, lastCompleteHarvest."""
    found = times.find(tag)
    if found is not None:
        return found
    made = etree.Element(tag)
    later = times.find("lastCompleteHarvest")
    if tag == "lastHarvested" and later is not None:
        made.tail = times.text
        later.addprevious(made)
    else:
        if len(times):
            made.tail, times[-1].tail = times[-1].tail, times.text
        times.append(made)
    return made


def serialized(root: etree._Element) -> bytes:
    body = etree.tostring(root.getroottree(), encoding="UTF-8", xml_declaration=False)
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + body + b"\n"
