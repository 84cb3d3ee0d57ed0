"""The course of a job: what happened to it, when and where.

A record keeps the instants of a job that simply ran, and a line of JSON for everything else (rules/history.lua), the
last 50.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from kombu.utils.json import loads

from coordinator.jobs.spec import ErrorRecord
from coordinator.store.times import instant
from coordinator.store.values import Json

# The words of events beside the states that end a job; `docs/api.md` explains them.
EVENTS = (
    "submitted", "ready", "running", "raised", "conflict", "timed_out", "lost", "found", "stopped", "handed", "step",
    "replaced", "parked", "woken", "held", "rolling_back", "stopping", "retried", "moved", "resumed", "retargeted",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to a job at one instant. `what`: one of EVENTS, or the state in which the job ended.

    `node`, `attempt`: where it ran then, or last. `cause`: {type, message} of an error. `by`, `why`, `ticket`: of an
    act; `act`: the id of one on many, `Action.of`. `due`: when the job goes on.
    """

    at: datetime
    what: str
    node: str | None = None
    attempt: int | None = None
    cause: ErrorRecord | None = None
    by: str | None = None
    why: str | None = None
    due: datetime | None = None
    ticket: str | None = None
    act: str | None = None


def events_of(text: str, first: int) -> Iterator[Event]:
    """The events of a record's field `course`, and the beginning of each attempt that they name.

    `first`: the number of the step with which the job began. A damaged text raises all sorts of errors.
    """
    begun = set()
    for line in map(loads, text.split("\n")):
        node, claims, step = line.get("node"), line.get("attempt"), line.get("step")
        attempt = None if claims is None else int(str(claims)) - int(str(step or 0)) + first
        since = _instant(line.get("since"))
        if since and (since, claims) not in begun:
            begun.add((since, claims))
            yield Event(since, "running", _text(node), attempt)
        cause: ErrorRecord = {name: line[name] for name in ("type", "message") if line.get(name)}  # type: ignore[assignment]
        yield Event(
            at=instant(float(str(line["at"]))),
            what=str(line["what"]),
            node=_text(node),
            attempt=attempt,
            cause=cause or None,
            by=_text(line.get("by")),
            why=_text(line.get("why")),
            due=_instant(line.get("due")),
            ticket=_text(line.get("ticket")),
            act=_text(line.get("act")),
        )


def course_of(
    instants: Sequence[datetime | None], state: str, where: tuple[str | None, int], error: ErrorRecord | None,
    noted: Sequence[Event],
) -> tuple[Event, ...]:  # fmt: skip
    """The course of a job in the order of time: what its record tells by instants, and the events `noted`.

    `instants`: when it was submitted, became ready, began its last attempt, and ended. `where`: node and number of that
    attempt.
    """
    submitted, readied, started, ended = instants
    end = [Event(started, "running", *where)] if started else []
    if ended:
        node, attempt = where if started else (None, None)
        by, ticket, act = (error and error.get(name) for name in ("by", "ticket", "act"))
        short = _short(error)
        end.append(Event(ended, state, node, attempt, short, by=_text(by), ticket=_text(ticket), act=_text(act)))
    known = {(event.at, event.what, event.attempt) for event in noted}
    events = [Event(submitted, "submitted")] if submitted else []
    events += [*noted, *(event for event in end if (event.at, event.what, event.attempt) not in known)]
    events.sort(key=attrgetter("at"))
    if readied:  # within one ms it comes after an act, and before an attempt
        earlier = [event.at < readied or (event.at == readied and event.what != "running") for event in events]
        events.insert([*earlier, False].index(False), Event(readied, "ready"))
    return tuple(events)


def _short(error: ErrorRecord | None) -> ErrorRecord | None:
    """The error as an event has it."""
    return {"type": error.get("type", ""), "message": str(error.get("message", ""))[:200]} if error else None


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _instant(value: Json) -> datetime | None:
    return None if value is None else instant(float(str(value)))
