"""How a listed member stands in the nodelist's document, and the notes about what the permanent store has of it."""

from datetime import datetime
from typing import Any

from coordinator.copies import Copy
from tasks import instants
from tasks.catalog import Dates
from tasks.member import Member
from tasks.sources import DATES, Listed, State

MEMBER, DATED = "member/", "dates/"
UNKNOWN = "?"
"""The store has made what it has of no listing of ours."""


def ours_of(copy: Copy, node_id: str) -> Listed | None:
    value, dates = copy.value(MEMBER + node_id), copy.value(DATED + node_id) or {}
    return value and Listed(member=Member.model_validate(value["member"] | dates), approved=value["approved"])


def has(note: Any, wanted: Listed | None) -> bool:
    """Has the store what is wanted, or what it made of it?"""
    if note is None:
        return wanted is None
    text = wanted and wanted.model_dump(mode="json")
    return bool(text in (note["wrote"], note["listed"]))


def is_foreign(note: Any, state: State | None) -> bool:
    """Was it changed in the store, by somebody else than us?"""
    theirs = state and state.listed.model_dump(mode="json")
    if note is None:
        return theirs is not None
    return theirs != note["listed"] and theirs not in note["intents"]


def dates_of(copy: Copy, node_id: str) -> Dates:
    found = copy.value(DATED + node_id) or {}
    return Dates(*(found.get(name) and instants.parse(found[name]) for name in DATES))


def texts_of(dates: Dates) -> dict[str, str | None]:
    return {name: None if date is None else instants.full(date) for name, date in zip(DATES, dates, strict=True)}


def difference(node_id: str, before: Listed | None, after: Listed | None) -> dict[str, Any]:
    """What is to be committed to make `after` of `before`."""
    if before == after:
        return {}
    if after is None:
        return {MEMBER + node_id: None, DATED + node_id: None}
    changes: dict[str, Any] = {}
    about, dates = _parts(after)
    if before is None or _parts(before)[0] != about:
        changes[MEMBER + node_id] = about
    if before is None or _parts(before)[1] != dates:
        changes[DATED + node_id] = dates
    return changes


def _parts(one: Listed) -> tuple[dict[str, Any], dict[str, str | None]]:
    about = one.member.model_dump(mode="json", exclude=set(DATES))
    return {"approved": one.approved, "member": about}, texts_of(Dates(*(getattr(one.member, name) for name in DATES)))


def keeping(new: Listed | None, old: Listed | None) -> Listed | None:
    """Dates that the new one does not name stay."""
    if new is None or old is None:
        return new
    dates = {name: getattr(new.member, name) or getattr(old.member, name) for name in DATES}
    return new.model_copy(update={"member": new.member.model_copy(update=dates)})


def note_of(state: State | None, wrote: Any) -> dict[str, Any]:
    """`wrote`: of which listing of ours the store has made what it has; UNKNOWN: of none."""
    listed = state and state.listed.model_dump(mode="json")
    return {"listed": listed, "token": state and state.token, "wrote": wrote, "intents": []}


def _of_json(text: Any) -> Listed | None:
    return None if text is None else Listed.model_validate(text)


def listed_of(note: Any) -> Listed | None:
    return _of_json(note["listed"]) if note else None


def state_of(note: Any) -> State | None:
    listed = listed_of(note)
    return None if listed is None else State(listed, note["token"])


def later(one: datetime | None, other: datetime | None) -> datetime | None:
    return max((date for date in (one, other) if date is not None), default=None)


def lines_of(node_id: str, before: Listed | None, after: Listed | None) -> list[str]:
    """The differences, a line each."""
    if before is None or after is None:
        return [f"{node_id} is new"] if after else [f"{node_id} is gone"] if before else []
    old, new = before.member.model_dump(mode="json"), after.member.model_dump(mode="json")
    lines = [f"{node_id}: {name}: {old[name]} → {new[name]}" for name in old if old[name] != new[name]]
    if before.approved != after.approved:
        lines.append(f"{node_id} is {'approved' if after.approved else 'suspended'}")
    return lines
