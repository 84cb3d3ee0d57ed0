"""What a recorded step asked for, as the model knows it: the fields of a job, a lock, a node."""

from __future__ import annotations

from collections.abc import Sequence
from json import loads
from typing import Any

from proof.model.dependants import Wait
from proof.model.lanes import Node
from proof.model.quotas import Bounds
from proof.model.record import Job, Place, Use, collected

KNOWN = {
    "after", "blocks", "by", "class", "equal", "expires", "grab", "group", "hold", "limits", "calls", "parent",
    "priority", "replaces", "seldom", "spec", "step", "task", "tell", "tick", "undo", "uses",
}  # fmt: skip


class Unknown(Exception):
    """The model does not know this."""


def pairs(words: Sequence[str]) -> dict[str, str]:
    return dict(zip(words[::2], words[1::2], strict=True))


def job(
    name: str, keys: str, busy: str, priority: str, not_before: str, words: Sequence[str]
) -> tuple[Job, dict[str, str]]:
    """Of names and values of its record, and these."""
    fields = pairs(words)
    if strange := fields.keys() - KNOWN:
        raise Unknown(f"a job with {sorted(strange)}")
    most, losses, limit, lifetime, success, failure = _limits(fields["limits"])
    steps = loads(fields["spec"]).get("steps", [])
    due, span = instant(not_before)
    expires, expires_by_span = instant(fields.get("expires", "0"))
    if due and expires and span != expires_by_span:
        raise Unknown("a job that has both an instant and a span")
    found = Job(
        id=name,
        keys=keys_of(keys),
        place=Place(fields["class"], fields["task"], limit),
        priority=int(priority),
        steps=tuple(Place(step["class"], step["task"], step["limit"]) for step in steps),
        step=int(fields.get("step", 0)),
        max_attempts=most,
        max_losses=losses,
        lifetime=lifetime,
        keep_success=success,
        keep_failure=failure,
        undo=(_undo(fields["undo"]),) if "undo" in fields else (),
        hold="hold" in fields,
        tell="tell" in fields,
        parent=fields.get("parent", ""),
        expires=expires or None,
        not_before=due,
        span=span or expires_by_span,
        coalesce=fields.get("equal", ""),
        fair=fields.get("group", ""),
        uses=uses(fields.get("uses", "")),
        blocks="blocks" in fields,
    )
    found.terms, found.calls = collected(busy, fields.get("calls", ""))
    _wait(found, fields.get("after", ""))
    return found, fields


def _wait(found: Job, after: str) -> None:
    if after:
        found.policy, *lines = after.split("\n")
        found.after = tuple((argument, cause) for argument, _, cause in (line.partition(" ") for line in lines))


def _limits(text: str) -> list[int]:
    numbers = [int(number) for number in text.split()]
    if numbers[6:]:
        raise Unknown("a bound on how many successes are kept")
    return numbers


def keys_of(text: str) -> tuple[str, ...]:
    return tuple(text.split("\n")) if text else ()


def _undo(text: str) -> Place:
    task, limit, kind = text.split("\n", 2)
    return Place(kind, task, int(limit))


def instant(text: str) -> tuple[int, bool]:
    """Its ms, and whether it is a span."""
    return int(text.removeprefix("+")), text.startswith("+")


def uses(text: str) -> tuple[Use, ...]:
    """Lines of "<units> <flags> <quota>"."""
    parts = [line.split(" ", 2) for line in text.splitlines()]
    if any("/" in flags for _, flags, _ in parts):
        raise Unknown("the rate limit of a task")
    return tuple(
        Use(name, 0 if units == "*" else int(units), "e" in flags, "o" in flags) for units, flags, name in parts
    )


def wait(detail: str, then: Place) -> Wait:
    """Of an attempt that waits for an event."""
    asked = loads(detail)
    limit, task, kind = asked["else"].partition("\0")[0].split("\n", 2) if asked["else"] else ("", "", "")
    return Wait(asked["event"], asked["timeout"], then, Place(kind, task, int(limit)) if task else None)


def bounds(*words: str) -> Bounds:
    limit, count, period, burst = (int(word) if word else None for word in words)
    return Bounds(limit, count, period, burst)


def lock(name: str, key: str, token: str, ttl: str, lifetime: str, used: str = "") -> Job:
    found = Job(id=name, keys=keys_of(key), place=None, token=token, ttl=int(ttl), lifetime=int(lifetime))
    found.uses = uses(used)
    return found


def serve(node: Node, about: str, serves: str, tasks: str) -> None:
    """What a node says of itself as it registers."""
    told: dict[str, Any] = loads(about)
    words: dict[str, set[str]] = {"app": set(), "queue": set(), "label": set()}
    for served in loads(serves):
        kind, _, what = served.partition(" ")
        words[kind].add(what)
    (node.app,) = words["app"] or {str(told.get("app", ""))}
    node.queues, node.labels, node.tasks = frozenset(words["queue"]), frozenset(words["label"]), frozenset(loads(tasks))
