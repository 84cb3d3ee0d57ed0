"""Reads the audit trail: what operators did, the newest first. The Redis functions write it (rules/audit.lua)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Unpack
from uuid import uuid4

from coordinator.core.author import Acting, act_of
from coordinator.core.jobs.record import fields_of_many
from coordinator.core.jobs.validation import stored_lane
from coordinator.core.store.client import Store
from coordinator.core.store.steps import audit_note
from coordinator.core.store.times import instant, milliseconds, moment, to_ms
from coordinator.errors import InvalidJob

_PAGE = 500
_KEPT = ("course", "error", "retried", "moved", "resumed", "retargeted")
_ACT = re.compile(r'"act": ?"([0-9a-f]{32})"')
_BEGUN = "begun"


@dataclass(frozen=True, slots=True)
class Action:
    """A line of the audit trail: an act of an operator.

    `id`: the line's id, for `actions(after=…)`. `act`: cancel, retry, pause …; `kind` and `name`: of the thing, such as
    `job` and the job's id. `before`, `after`: the state, holder or limit of the thing before and after the act, as
    text. `of`: only for an act on many things: the act's id, which its two lines (begun, ended) share and which the
    records of the changed jobs name; "": an act on one thing.
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


def actions(
    store: Store, most: int, after: str, by: str | None, thing: str | None, since: int | None, until: int | None
) -> list[Action]:
    """List at most `most` acts behind `after`, the newest first, by an author and on a thing, as `Coordinator.actions`
    does. `by`, `thing`: None = any. `since`, `until`: ms since the epoch, None = any.
    """
    matching: list[Action] = []
    thing = thing and stored_lane(thing)
    many = _on_many(store, thing or "")
    for action in newest_first(store, after):
        named = thing in (None, action.kind, action.thing) or action.of in many or _covers(action, thing or "")
        if by in (None, action.by) and named and _is_within(action, since, until):
            matching.append(_so_far(store, action))
            if len(matching) == most:
                break
    return matching


def _is_within(action: Action, since: int | None, until: int | None) -> bool:
    at = to_ms(action.at)
    return (since is None or at >= since) and (until is None or at <= until)


def _on_many(store: Store, thing: str) -> set[str]:
    """Return the ids of the acts on many things that changed this job, from the job's record; none if it is no job."""
    kind, _, job_id = thing.partition(" ")
    if kind != "job" or not job_id:
        return set()
    [kept] = fields_of_many(store, [job_id], *_KEPT)
    return {found for text in kept for found in _ACT.findall(text)}


def _covers(action: Action, thing: str) -> bool:
    """True if `action` is an act on all lanes whose keys have a prefix, and `thing` is one of these lanes."""
    kind, _, key = thing.partition(" ")
    if (kind, action.kind) != ("lane", "lanes"):
        return False
    named = stored_lane(action.name.removeprefix("key="))
    return key.startswith(named[:-1]) if named.endswith("*") else key == named


def _so_far(store: Store, action: Action) -> Action:
    """Add the number of changes to the line of an act on many things that still runs or was stopped."""
    if not action.of or not action.after.endswith(_BEGUN):
        return action
    count = store.read("GET", store.key("acted", action.of))
    return replace(action, after=f"{action.after}: {int(count)} changed so far") if count else action


class OnMany:
    """The trail of one act on many things: the act's first change writes a line, and `ended` another. `into`: text that
    stands in front of `begun` and `ended` in the lines, such as the new task of a retarget.
    """

    def __init__(
        self, store: Store, verb: str, kind: str, name: str, before: str, into: str = "", **acting: Unpack[Acting]
    ) -> None:
        self._store, self._line, self._into = store, (verb, kind, name), into
        self._id, self._acting, self._before = uuid4().hex, acting, before
        about = {"id": self._id, "kind": kind, "name": name, "before": before, "after": f"{into}{_BEGUN}"}
        self.text = act_of(**acting, about=about)
        """Author, reason and the act's id, as JSON for the Redis functions that make the changes."""

    def changed(self) -> int:
        """Count the things that this act has changed. Some of the things that were found may be changed by others."""
        return int(self._store.read("GET", self._store.key("acted", self._id)) or 0)

    def ended(self, how: str = "ended", total: int = 0) -> None:
        """Write the last line: the act has `ended`, or was `stopped`. `total`: how many things were found, 0 = as many
        as were changed.
        """
        if count := self.changed():
            of = f"{count} of {total}" if total > count else f"{count}"
            act, after = act_of(**self._acting, about={"of": self._id}), f"{self._into}{how}: {of} changed"
            note_act(self._store, *self._line, f"{self._id} ended", act, self._before, after)
            self._store.read("DEL", self._store.key("acted", self._id))


def note_act(
    store: Store, verb: str, kind: str, name: str, id: str, act: str, before: str = "", after: str = "", *,
    seconds: float = 3600.0,
) -> bool:  # fmt: skip
    """Write an act into the trail whose work no Redis function does, once for each `id` within `seconds`.

    `act`: author and reason, as `act_of` writes them. Returns False where the same author has written the act before.
    Raises InvalidJob where an act of another author has the `id`.
    """
    reply = audit_note(store, id, milliseconds(seconds), act, verb, kind, name, before, after)
    if reply < 0:
        raise InvalidJob(f"{kind} {name}: another act on it is under way; see `coordinator actions --thing {kind}`")
    return bool(reply)


def newest_first(store: Store, after: str = "") -> Iterator[Action]:
    """Yield all acts, the newest first. `after`: the id of an action, only older ones follow; "": all."""
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
