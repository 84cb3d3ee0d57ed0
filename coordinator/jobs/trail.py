"""Reads the audit trail: what operators did, the newest first. functions/rules/audit.lua writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Unpack
from uuid import uuid4

from coordinator.author import Acting, act_of
from coordinator.errors import InvalidJob
from coordinator.jobs.record import fields_of_many
from coordinator.jobs.validation import stored_lane
from coordinator.store.client import Store
from coordinator.store.times import instant, milliseconds, moment

_PAGE = 500
_KEPT = ("course", "error", "retried", "moved", "resumed", "retargeted")
_ACT = re.compile(r'"act": ?"([0-9a-f]{32})"')
_BEGUN = "begun"


@dataclass(frozen=True, slots=True)
class Action:
    """An act of an operator. `id`: of its line, which `actions(after=…)` takes.

    `act`: cancel, retry, pause …; `kind` and `name`: of the thing, such as `job` and its id. `before`, `after`: its
    state, its holder or its limit, as texts. `of`: an id that the two lines of an act on many share, as it begins and
    when it has ended; the records of the jobs that it changed name it.
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
    of: str = ""

    @property
    def thing(self) -> str:
        return f"{self.kind} {self.name}"


def actions(store: Store, most: int, after: str, by: str | None, thing: str | None) -> list[Action]:
    """See `Coordinator.actions`."""
    matching: list[Action] = []
    thing = thing and stored_lane(thing)
    many = _on_many(store, thing or "")
    for action in newest_first(store, after):
        named = thing in (None, action.kind, action.thing) or action.of in many or _covers(action, thing or "")
        if by in (None, action.by) and named:
            matching.append(_so_far(store, action))
            if len(matching) == most:
                break
    return matching


def _on_many(store: Store, thing: str) -> set[str]:
    """The acts on many that changed this job, as its record names them."""
    kind, _, job_id = thing.partition(" ")
    if kind != "job" or not job_id:
        return set()
    [kept] = fields_of_many(store, [job_id], *_KEPT)
    return {found for text in kept for found in _ACT.findall(text)}


def _covers(action: Action, thing: str) -> bool:
    """Whether it is an act on lanes by the key's beginning, and this is one of those lanes."""
    kind, _, key = thing.partition(" ")
    if (kind, action.kind) != ("lane", "lanes"):
        return False
    named = stored_lane(action.name.removeprefix("key="))
    return key.startswith(named[:-1]) if named.endswith("*") else key == named


def _so_far(store: Store, action: Action) -> Action:
    """An act on many that was stopped or goes on: with the number of its changes."""
    if not action.of or not action.after.endswith(_BEGUN):
        return action
    count = store.read("GET", store.key("acted", action.of))
    return replace(action, after=f"{action.after}: {int(count)} changed so far") if count else action


class OnMany:
    """An act on many things. Its first change writes its line into the trail; `ended` writes another."""

    def __init__(
        self, store: Store, verb: str, kind: str, name: str, before: str, into: str = "", **acting: Unpack[Acting]
    ) -> None:
        self._store, self._line, self._into = store, (verb, kind, name), into
        self._id, self._acting, self._before = uuid4().hex, acting, before
        about = {"id": self._id, "kind": kind, "name": name, "before": before, "after": f"{into}{_BEGUN}"}
        self.text = act_of(**acting, about=about)
        """For the steps, as `act_of` gives it."""

    def changed(self) -> int:
        """How many things it has changed; others may have changed more of those that were found."""
        return int(self._store.read("GET", self._store.key("acted", self._id)) or 0)

    def ended(self) -> None:
        if count := self.changed():
            act, after = act_of(**self._acting, about={"of": self._id}), f"{self._into}ended: {count} changed"
            note_act(self._store, *self._line, f"{self._id} ended", act, self._before, after)
            self._store.read("DEL", self._store.key("acted", self._id))


def note_act(
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
