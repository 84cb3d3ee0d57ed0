"""What a recorded step asked for, as the model knows it: the fields of a job, a lock, a node."""

from __future__ import annotations

from collections.abc import Sequence
from json import loads
from typing import Any

from proof.model.lanes import Node
from proof.model.record import Job, Place

KNOWN = {
    "by", "class", "equal", "exclusive", "expires", "grab", "group", "hold", "limits", "merge_args", "parent",
    "priority", "replaces", "seldom", "spec", "step", "task", "tell", "tick", "undo",
}  # fmt: skip


class Unknown(Exception):
    """The model does not know this."""


def pairs(words: Sequence[str]) -> dict[str, str]:
    return dict(zip(words[::2], words[1::2], strict=True))


def job(name: str, keys: str, priority: str, not_before: str, words: Sequence[str]) -> tuple[Job, dict[str, str]]:
    """Of names and values of its record, and these."""
    fields = pairs(words)
    if strange := fields.keys() - KNOWN:
        raise Unknown(f"a job with {sorted(strange)}")
    numbers = [int(number) for number in fields["limits"].split()]
    if numbers[6:]:
        raise Unknown("a bound on how many successes are kept")
    most, losses, limit, lifetime, success, failure = numbers
    steps = loads(fields["spec"]).get("steps", [])
    due, span = _instant(not_before)
    expires, expires_by_span = _instant(fields.get("expires", "0"))
    if due and expires and span != expires_by_span:
        raise Unknown("a job that has both an instant and a span")
    found = Job(
        id=name,
        keys=tuple(keys.split("\n")),
        place=Place(fields["class"], fields["task"], limit),
        priority=int(priority),
        alone="exclusive" in fields,
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
        unite=_united(fields.get("merge_args")),
        fair=fields.get("group", ""),
    )
    return found, fields


def _undo(text: str) -> Place:
    task, limit, kind = text.split("\n", 2)
    return Place(kind, task, int(limit))


def _instant(text: str) -> tuple[int, bool]:
    """Its ms, and whether it is a span."""
    return int(text.removeprefix("+")), text.startswith("+")


def _united(text: str | None) -> frozenset[str] | None:
    if text is None:
        return frozenset()
    ((_, texts), *more) = loads(text).items()
    if more:
        raise Unknown("merge_args of several names")
    return None if texts is None else frozenset(texts)


def lock(name: str, key: str, token: str, ttl: str, lifetime: str) -> Job:
    return Job(id=name, keys=(key,), place=None, token=token, ttl=int(ttl), lifetime=int(lifetime))


def serve(node: Node, about: str, serves: str, tasks: str) -> None:
    """What a node says of itself as it registers."""
    told: dict[str, Any] = loads(about)
    words: dict[str, set[str]] = {"app": set(), "queue": set(), "label": set()}
    for served in loads(serves):
        kind, _, what = served.partition(" ")
        words[kind].add(what)
    (node.app,) = words["app"] or {str(told.get("app", ""))}
    node.queues, node.labels, node.tasks = frozenset(words["queue"]), frozenset(words["label"]), frozenset(loads(tasks))
