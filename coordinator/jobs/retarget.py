"""Gives jobs another task: the old one was renamed, or another task is to do the work.

One step changes all of a job that is not at work, provided that its record is still as it was read: its next step, the
later ones, the rollback, and the tasks of its canvas and its links.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from coordinator.jobs import record
from coordinator.jobs.chain import inner
from coordinator.jobs.search import living
from coordinator.jobs.spec import Signature, Spec, StepSpec
from coordinator.store.client import Store

AT_WORK = ("running", "parked")
SEEN = ("state", "phase", "step", "task", "class", "undo", "home", "was", "spec")
_BATCH = 100
_TRIES = 3

ClassOf = Callable[[str], str | None]


class Retargeted(NamedTuple):
    """The number of jobs that were changed, and of those that are at work and stayed as they are."""

    jobs: int
    at_work: int


def retarget(store: Store, old: str, new: str, class_of: ClassOf, act: str) -> Retargeted:
    """Replace the task of all jobs that name `old`.

    `class_of`: the class of the new task for a job of this class; None where the job is another app's.
    """
    ids = living(store)
    jobs = at_work = 0
    while page := list(islice(ids, _BATCH)):
        changed, left = _change(store, page, _Change(old, new, class_of), act)
        jobs, at_work = jobs + changed, at_work + left
    return Retargeted(jobs, at_work)


def named_by(store: Store, old: str, new: str, class_of: ClassOf) -> Iterator[tuple[str, str]]:
    """Yield the id and the state of each job that names `old`; `retarget` leaves those that are AT_WORK."""
    change, ids = _Change(old, new, class_of), living(store)
    while page := list(islice(ids, _BATCH)):
        for job_id, seen in zip(page, record.fields_of_many(store, page, *SEEN), strict=True):
            if change.of(dict(zip(SEEN, seen, strict=True))):
                yield job_id, seen[0]


def _change(store: Store, ids: Sequence[str], change: _Change, act: str) -> tuple[int, int]:
    """Count the jobs that were changed, and those that were not, since they are at work.

    A job whose record changed meanwhile is read again.
    """
    done = at_work = 0
    for _ in range(_TRIES):
        calls = []
        for job_id, seen in zip(ids, record.fields_of_many(store, ids, *SEEN), strict=True):
            if fields := change.of(dict(zip(SEEN, seen, strict=True))):
                if seen[0] in AT_WORK:
                    at_work += 1
                else:
                    calls.append((job_id, "\0".join(seen), act, *(part for pair in fields.items() for part in pair)))
        replies = [store.checked(reply) for reply in store.step_many("job_retarget", calls)] if calls else []
        done += sum(replies)
        ids = [call[0] for call, reply in zip(calls, replies, strict=True) if not reply]
        if not ids:
            break
    return done, at_work + len(ids)


class _Change(NamedTuple):
    old: str
    new: str
    class_of: ClassOf

    def of(self, values: dict[str, str]) -> dict[str, str]:
        """The fields to write; none where the job does not name the task. A lock has no class."""
        if not values["class"] or self.class_of(values["class"]) is None:
            return {}
        fields: dict[str, str] = {}
        if values["task"] == self.old:
            fields |= {"task": self.new, "class": self._moved(values["class"])}
        for name, number in (("undo", 0), ("home", 1), ("was", 0)):  # the task's place; the class is the last part
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
    """The calls that follow a job: its links, and the rest of the canvas in which it was called."""
    message = spec.get("message", {})
    links = (*spec.get("link", ()), *spec.get("link_error", ()))
    for call in (*links, *message.get("chain", ()), message.get("chord")):
        yield from inner(call)
