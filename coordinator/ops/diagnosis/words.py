"""Says in words for what a job's time was spent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from coordinator.core.store.times import span_text

# Code of a cause -> what the job did for this time, in two parts, between which the time stands.
_SPENT = {
    "waiting.lane": ("waited", "for its lane"),
    "waiting.paused": ("waited", "in a paused lane"),
    "waiting.quota": ("waited", "for a quota"),
    "waiting.rate": ("waited", "for the rate of a quota"),
    "waiting.cooldown": ("waited", "for a quota to cool down"),
    "waiting.ready": ("waited", "for ready jobs of its task"),
    "waiting.next": ("waited", "for its lane"),
    "waiting.fleet": ("waited", "for a node"),
    "waiting.node": ("waited", "for a node that may run it"),
    "waiting.slot": ("waited", "for a slot"),
    "waiting.claim": ("waited", "for a node to take it"),
    "running.job": ("ran", ""),
    "running.rollback": ("was rolled back", ""),
    "running.lock": ("was held", "by plain code"),
    "running.grab": ("was held", "by a grab"),
    "later.scheduled": ("waited", "for its time"),
    "later.retry": ("waited", "for its next attempt"),
    "later.sorter": ("waited", "in its sorter"),
    "later.flush": ("waited", "in its sorter"),
    "later.collects": ("collected calls", ""),
    "blocked": ("waited", "for what it runs after"),
    "parked.event": ("waited", "for an event"),
    "parked.results": ("waited", "for its sub-tasks"),
    "parked.begun": ("waited", "for its sub-tasks"),
    "held": ("waited", "for you"),
    "held.cause": ("waited", "for you"),
}


def spent_text(so_far: Mapping[str, float]) -> str:
    """Say for what so many seconds were spent: `waited 3 min for its lane, 2 s for a slot; ran 30 s`. `so_far`: seconds
    by code. What took less than half a second is left out,
    unless all did.
    """
    long = {code: seconds for code, seconds in so_far.items() if seconds >= 0.5} or dict([*so_far.items()][-1:])
    said = [(_SPENT.get(code, ("spent", f"for {code}")), seconds) for code, seconds in long.items()]
    return "; ".join(_of_verb(verb, parts) for verb, parts in _by_verb(said))


def spent_on(code: str, seconds: str) -> str:
    """Say that a time, such as `3 min`, was spent for one cause: `waited 3 min for its lane`."""
    verb, what = _SPENT.get(code, ("spent", f"for {code}"))
    return f"{verb} {seconds} {what}".rstrip()


def _by_verb(said: list[tuple[tuple[str, str], float]]) -> Iterator[tuple[str, list[str]]]:
    for verb, group in groupby(said, key=lambda one: one[0][0]):
        yield verb, [f"{span_text(seconds)} {what}".rstrip() for (_, what), seconds in group]


def _of_verb(verb: str, parts: list[str]) -> str:
    return f"{verb} {', '.join(parts)}"
