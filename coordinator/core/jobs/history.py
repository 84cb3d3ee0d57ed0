"""Reads the course of a job from its record: which events happened to the job, when, and on which node.

To save memory, the record of a job has only fields for the instants at which the job was submitted, became ready, was
started and ended. Each other event is a line of JSON in the field `course`, which keeps the last 50 of these lines
(rules/history.lua).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from kombu.utils.json import loads

from coordinator.core.jobs.spec import ErrorRecord
from coordinator.core.store.times import instant
from coordinator.core.store.values import Json

# The values of `Event.what`, beside the states in which a job ends; `docs/api.md` explains each.
EVENTS = (
    "submitted", "ready", "running", "raised", "conflict", "cooled_down", "timed_out", "lost", "found", "stopped",
    "handed", "step", "replaced", "parked", "woken", "held", "rolling_back", "stopping", "retried", "moved", "resumed",
    "retargeted", "flushed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a job at one instant. `what`: one of EVENTS, or the state in which the job ended.

    `node`, `attempt`: the node on which the job ran at that time or last, and the number of that attempt. `cause`:
    {type, message} of an error. `by`, `why`, `ticket`: the author of an operator's act, the reason and the ticket that
    the author gave. `act`: the id of an act on many jobs, the same for all of them. `due`: when the job is to go on
    after the event. A field that the event does not have is None.
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
    """Yield the events in `text`, the field `course` of a record, and one `running` event for each attempt in them.

    `first`: the number of the step with which the job began. A damaged text may raise any error.
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
    """Merge the events that a record keeps as instants with those in `noted`, and return all in the order of time.

    `instants`: when the job was submitted, became ready, began its last attempt, and ended; None: not yet. `where`:
    node and number of that attempt. `error`: of the last attempt, None if it succeeded.
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
    if readied:  # among events of the same ms, `ready` comes after an operator's act and before a start
        earlier = [event.at < readied or (event.at == readied and event.what != "running") for event in events]
        events.insert([*earlier, False].index(False), Event(readied, "ready"))
    return tuple(events)


def _short(error: ErrorRecord | None) -> ErrorRecord | None:
    """Cut an error to its type and the first 200 characters of its message, as an event has it."""
    return {"type": error.get("type", ""), "message": str(error.get("message", ""))[:200]} if error else None


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _instant(value: Json) -> datetime | None:
    return None if value is None else instant(float(str(value)))
