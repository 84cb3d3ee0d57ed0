"""Replaces a task by another in jobs: because the task was renamed, or because another task is to do the work.

For a job that is not at work, one call of a Redis function replaces the task everywhere, provided that the job's record
is still as it was read: in the next step and the later ones, in the rollback, and in the job's canvas and links.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from coordinator.core.jobs import record
from coordinator.core.jobs.chain import inner
from coordinator.core.jobs.spec import Signature, Spec, StepSpec
from coordinator.core.store.client import Store
from coordinator.core.store.step import many
from coordinator.core.store.steps import job_retarget
from coordinator.ops.search.jobs import living

if TYPE_CHECKING:
    from celery import Celery

    from coordinator.core.lanes.client import LaneClient

AT_WORK = ("running", "parked")
SEEN = ("state", "phase", "step", "task", "class", "undo", "home", "was", "spec")
_BATCH = 100
_TRIES = 3

ClassOf = Callable[[str], str | None]


def class_for(app: Celery | None, lanes: LaneClient, task: str) -> ClassOf:
    """Return a function that takes a job's routing class, and returns the class with the app and queue of `task`, or
    None for a job of another app. Raises InvalidJob where no app or node has `task`.
    """
    from coordinator.core.client.task_defaults import place_of

    own, (home, queue) = app.main if app else "", place_of(app, lanes, task)

    def class_of(routing_class: str) -> str | None:
        former, _, *labels = routing_class.split("\n")
        return None if own and former not in ("", own) else "\n".join((home, queue, *labels))

    return class_of


class Retargeted(NamedTuple):
    """The number of jobs that were changed, and of those that are at work and stayed as they are."""

    jobs: int
    at_work: int


def retarget(store: Store, old: str, new: str, class_of: ClassOf, act: str) -> Retargeted:
    """Replace the task `old` by `new` in all jobs that name it. `class_of`: the result of `class_for(new)`.

    `act`: author and reason, as `act_of` writes them.
    """
    ids = living(store)
    jobs = at_work = 0
    while page := list(islice(ids, _BATCH)):
        changed, left = _change(store, page, _Change(old, new, class_of), act)
        jobs, at_work = jobs + changed, at_work + left
    return Retargeted(jobs, at_work)


def named_by(store: Store, old: str, new: str, class_of: ClassOf) -> Iterator[tuple[str, str]]:
    """Yield the id and the state of each job that names the task `old`. `retarget` skips jobs in a state of AT_WORK."""
    change, ids = _Change(old, new, class_of), living(store)
    while page := list(islice(ids, _BATCH)):
        for job_id, seen in zip(page, record.fields_of_many(store, page, *SEEN), strict=True):
            if change.of(dict(zip(SEEN, seen, strict=True))):
                yield job_id, seen[0]


def _change(store: Store, ids: Sequence[str], change: _Change, act: str) -> tuple[int, int]:
    """Replace the task in these jobs. Returns how many were changed; and how many were not, since they are at work or
    were written by others during all three tries: a job whose record changes between read and write is read again.
    """
    done = at_work = 0
    for _ in range(_TRIES):
        calls = []
        for job_id, seen in zip(ids, record.fields_of_many(store, ids, *SEEN), strict=True):
            if fields := change.of(dict(zip(SEEN, seen, strict=True))):
                if seen[0] in AT_WORK:
                    at_work += 1
                else:
                    parts = (part for pair in fields.items() for part in pair)
                    calls.append(job_retarget.of(job_id, "\0".join(seen), act, *parts))
        replies = [store.checked(reply) for reply in many(store, calls)]
        done += sum(replies)
        ids = [str(call.args[0]) for call, reply in zip(calls, replies, strict=True) if not reply]
        if not ids:
            break
    return done, at_work + len(ids)


class _Change(NamedTuple):
    old: str
    new: str
    class_of: ClassOf

    def of(self, values: dict[str, str]) -> dict[str, str]:
        """Return the record's fields to write: {} where the job does not name the task `old`, or is a lock, which has
        no class. `values`: the record's fields SEEN.
        """
        if not values["class"] or self.class_of(values["class"]) is None:
            return {}
        fields: dict[str, str] = {}
        if values["task"] == self.old:
            fields |= {"task": self.new, "class": self._moved(values["class"])}
        for name, number in (("undo", 0), ("home", 1), ("was", 0)):  # number of the line with the task
            parts = values[name].split("\n", 1 if name == "was" else 2)
            if values[name] and parts[number] == self.old:
                parts[number], parts[-1] = self.new, self._moved(parts[-1])
                fields[name] = "\n".join(parts)
        spec: Spec = json.loads(values["spec"] or "{}")
        if sum([self._step(step) for step in _steps(spec)]) + sum([self._rename(call) for call in _around(spec)]):
            fields["spec"] = json.dumps(spec, separators=(",", ":"))
        return fields

    def _moved(self, kind: str) -> str:
        return self.class_of(kind) or kind

    def _step(self, step: StepSpec) -> int:
        changed = sum([self._rename(call) for call in inner(step.get("canvas"))])
        if step.get("task") != self.old:
            return changed
        step["task"] = self.new
        if "class" in step:
            step["class"] = self._moved(step["class"])
        return changed + 1

    def _rename(self, call: Signature) -> int:
        if call["task"] != self.old:
            return 0
        call["task"] = self.new
        return 1


def _steps(spec: Spec) -> Iterator[StepSpec]:
    for whole in (spec, spec.get("rollback")):
        if whole is not None:
            yield from whole.get("steps") or [whole]


def _around(spec: Spec) -> Iterator[Signature]:
    """Yield the calls that follow a job: its links, and the rest of the canvas in which the job was called."""
    message = spec.get("message", {})
    links = (*spec.get("link", ()), *spec.get("link_error", ()))
    for call in (*links, *message.get("chain", ()), message.get("chord")):
        yield from inner(call)
