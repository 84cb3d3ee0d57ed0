"""Reads the audit trail: what operators did, the newest first. functions/rules/audit.lua writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from coordinator.errors import InvalidJob
from coordinator.jobs.validation import stored_lane
from coordinator.store.client import Store
from coordinator.store.times import instant, milliseconds, moment

_PAGE = 500


@dataclass(frozen=True, slots=True)
class Action:
    """An act of an operator. `id`: of its line, which `actions(after=…)` takes.

    `act`: cancel, retry, pause …; `kind` and `name`: of the thing, such as `job` and its id. `before`, `after`: its
    state, its holder or its limit, as texts.
    """

    id: str
    at: datetime
    by: str
    act: str
    kind: str
    name: str
    why: str
    ticket: str
    before: str
    after: str

    @property
    def thing(self) -> str:
        return f"{self.kind} {self.name}"


def actions(store: Store, most: int, after: str, by: str | None, thing: str | None) -> list[Action]:
    """See `Coordinator.actions`."""
    matching: list[Action] = []
    named = thing and stored_lane(thing)
    for action in newest_first(store, after):
        if by in (None, action.by) and named in (None, action.kind, action.thing):
            matching.append(action)
            if len(matching) == most:
                break
    return matching


def note(
    store: Store, verb: str, kind: str, name: str, id: str, act: str, before: str = "", after: str = "", *,
    seconds: float = 3600.0,
) -> bool:  # fmt: skip
    """Write an act whose work is done elsewhere into the trail, once for each `id` in so many seconds.

    `act`: of `act_of`. False: this author wrote it before. Raises InvalidJob where the act of another has the id.
    """
    reply = store.step("audit_note", id, milliseconds(seconds), act, verb, kind, name, before, after)
    if reply < 0:
        raise InvalidJob(f"{kind} {name}: another act on it is under way; see `coordinator actions --thing {kind}`")
    return bool(reply)


def newest_first(store: Store, after: str = "") -> Iterator[Action]:
    """All acts; those behind `after`, the id of an action."""
    if after and not re.fullmatch(r"\d{1,18}-\d{1,18}", after):
        raise InvalidJob(f"after {after!r:.80}: give the id of an action, as `actions` lists it")
    last = f"({after}" if after else "+"
    while page := store.read("XREVRANGE", store.key("actions"), last, "-", "COUNT", _PAGE):
        for number, fields in page:
            yield _parsed(number.decode(), fields)
        last = f"({page[-1][0].decode()}"


def _parsed(number: str, fields: Mapping[bytes, bytes]) -> Action:
    text = {name.decode(): value.decode(errors="replace") for name, value in fields.items()}
    if text["act"] == "skip":
        text |= {name: moment(instant(int(text[name]))) for name in ("before", "after") if text[name]}
    return Action(id=number, at=instant(int(text.pop("at"))), **text)
