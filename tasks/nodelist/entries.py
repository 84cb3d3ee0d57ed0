"""Converts members of the nodelist (Listed) to and from entries of the replicated document. A member has up to three:

    member/<id>   the member itself, and whether it is approved; operators and refreshes change this entry
    dates/<id>    the dates until which the member was harvested; syncs change this entry, under their fence
    kept/<id>     data that no permanent store has a place for: the checksum of the member's token, the changes that
                  the member proposes, or why its description could not be read (tasks/description.py)

So a sync and an operator never change the same entry.
"""

import hashlib
from collections.abc import Mapping
from typing import NotRequired, TypedDict

from pydantic import JsonValue

from tasks import instants
from tasks.documents.copy import Copy
from tasks.member_node.member import Member
from tasks.nodelist.protocol import DATES, Dates
from tasks.nodelist.stores import Listed

Changes = dict[str, Mapping[str, JsonValue] | None]
"""The changes of an update of the document: new values by the name of the entry; None removes the entry."""

MEMBER, DATED, KEPT = ENTRIES = "member/", "dates/", "kept/"


class Proposal(TypedDict):
    """A change of one field that a member's description proposes. `before`: the value in the nodelist at that time.

    `after`: the value in the description. `refused`: the operator who refused the change, and why; absent: it waits.
    """

    before: JsonValue
    after: JsonValue
    refused: NotRequired[str]


class Kept(TypedDict, total=False):
    """The entry `kept/<id>` of a member. `token`: the SHA-256, in hexadecimal digits, of the member's token.

    `proposals`: proposed changes by field. `undescribed`: why the member's description could not be read; empty or
    absent: it could.
    """

    token: str
    proposals: dict[str, Proposal]
    undescribed: str


NOBODY: Changes = {MEMBER: None}
"""The change that makes the first version of a document without members: it removes a member whose id is empty.
The update needs a fence: without a fence, an update that removes nothing makes no version."""


def listed_in(copy: Copy, member_id: str) -> Listed | None:
    value, dates = copy.value(MEMBER + member_id), copy.value(DATED + member_id) or {}
    return value and Listed(member=Member.model_validate(value["member"] | dates), approved=value["approved"])


def dates_in(copy: Copy, member_id: str) -> Dates:
    dates = copy.value(DATED + member_id) or {}
    return Dates(*(dates.get(name) and instants.parse(dates[name]) for name in DATES))


def dates_value(dates: Dates) -> dict[str, str | None]:
    return {name: None if date is None else instants.full(date) for name, date in zip(DATES, dates, strict=True)}


def member_value(listed: Listed) -> dict[str, JsonValue]:
    """The value of the entry `member/<id>`: the member without its harvest dates, and whether it is approved."""
    return {"approved": listed.approved, "member": listed.member.model_dump(mode="json", exclude=set(DATES))}


def difference(member_id: str, before: Listed | None, after: Listed | None) -> Changes:
    """The changes of the document's entries that turn `before` into `after`; None: the member is not in the list."""
    if before == after:
        return {}
    if after is None:
        return {MEMBER + member_id: None, DATED + member_id: None}
    changes: Changes = {}
    if before is None or member_value(before) != member_value(after):
        changes[MEMBER + member_id] = member_value(after)
    if before is None or Dates.of(before.member) != Dates.of(after.member):
        changes[DATED + member_id] = dates_value(Dates.of(after.member))
    return changes


def forgetting(copy: Copy, changes: Changes) -> Changes:
    """`changes`, and the removal of `kept/<id>` for each member that these remove. `copy`: the document before."""
    removed = (entry.removeprefix(MEMBER) for entry, value in changes.items() if entry.startswith(MEMBER) and not value)
    return changes | {KEPT + member_id: None for member_id in removed if copy.value(KEPT + member_id)}


def keeping(new: Listed | None, old: Listed | None) -> Listed | None:
    """`new`, a member from an imported document, with the approval of `old`, and with old dates where it has none."""
    if new is None or old is None:
        return new
    dates = {name: getattr(new.member, name) or getattr(old.member, name) for name in DATES}
    return Listed(member=new.member.model_copy(update=dates), approved=old.approved)


def lines_of(member_id: str, before: Listed | None, after: Listed | None) -> list[str]:
    """A sentence about each difference between two states of a member; None: the member is not in the list."""
    if before is None or after is None:
        return [f"{member_id} is new"] if after else [f"{member_id} is gone"] if before else []
    old, new = before.member.model_dump(mode="json"), after.member.model_dump(mode="json")
    lines = [f"{member_id}: {name}: {old[name]} → {new[name]}" for name in old if old[name] != new[name]]
    if before.approved != after.approved:
        lines.append(f"{member_id} is {'approved' if after.approved else 'suspended'}")
    return lines


Raw = tuple[str, str | None]


class View:
    """Builds the members from a copy of the document, and caches them: the next copy costs the changed members only."""

    def __init__(self) -> None:
        self._last: tuple[int, dict[str, Raw], dict[str, Listed], str] = (-1, {}, {}, "")

    def of(self, copy: Copy) -> tuple[dict[str, Listed], str]:
        """The members in a copy of the document by id, and a checksum of the list without the harvest dates."""
        version, before, known, checksum = self._last
        if copy.version != version:
            raws = {
                entry.removeprefix(MEMBER): (raw, copy.state.get(DATED + entry.removeprefix(MEMBER)))
                for entry, raw in sorted(copy.state.items())
                if entry.startswith(MEMBER) and not raw.endswith(" null")
            }
            changed = {member_id for member_id, raw in raws.items() if before.get(member_id) != raw}
            built = {
                member_id: listed_in(copy, member_id) if member_id in changed else known[member_id]
                for member_id in raws
            }
            listed = {member_id: member for member_id, member in built.items() if member}
            if raws.keys() != before.keys() or any(before[member_id][0] != raws[member_id][0] for member_id in changed):
                text = "\n".join(f"{member_id} {raw}" for member_id, (raw, _) in sorted(raws.items()))
                checksum = hashlib.sha256(text.encode()).hexdigest()
            self._last = copy.version, raws, listed, checksum
        return self._last[2], self._last[3]
