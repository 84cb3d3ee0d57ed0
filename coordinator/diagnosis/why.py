"""Explains why a thing is where it is: a chain of causes, from the thing itself down to its roots.

A root is a job that runs, an instant at which something is due, an operator's decision, or a lack in the fleet. A job
that waits leads to each job that is in its way. Jobs meet in the same order in all lanes, so the chain ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from coordinator.diagnosis.cause import Cause, Why
from coordinator.diagnosis.entries import of_entry
from coordinator.diagnosis.jobs import of_job, of_lane
from coordinator.diagnosis.nodes import of_node
from coordinator.diagnosis.snapshot import Reasons, Snapshot
from coordinator.diagnosis.spent import spent
from coordinator.errors import InvalidJob, UnknownJob
from coordinator.jobs import validation
from coordinator.jobs.record import Job
from coordinator.jobs.validation import shown_lane
from coordinator.lanes.client import LaneClient
from coordinator.store.times import instant, span_text

if TYPE_CHECKING:  # a job's causes need no schedule
    from coordinator.scheduler.steering import Entries

MOST = 20  # things that one answer follows


def why_of(
    lanes: LaneClient, wanted: Mapping[str, str | None], needed: Mapping[str, Reasons],
    entries: Callable[[], Entries], kinds: Mapping[str, Callable[[str], Why]],
) -> Why:  # fmt: skip
    """Explain the one thing that is `wanted`, by its kind. `kinds`: those of extensions."""
    named = [(kind, name) for kind, name in wanted.items() if name is not None]
    known = dict.fromkeys(("job", "key", "node", "entry", *kinds))
    if len(named) != 1 or named[0][0] not in known:
        asked = ", ".join(kind for kind, _ in named) or "nothing"
        raise InvalidJob(f"why explains one thing, {' or '.join(known)}, not {asked}")
    [(kind, name)] = named
    validation.text(kind, name)
    if kind in kinds:
        return kinds[kind](name)
    look = Snapshot(lanes, needed)
    if kind == "job":
        return why_job(look, name)
    if kind == "key":
        key = validation.check_key(name)
        return why_thing(look, f"lane {key}", of_lane(look, key))
    return why_thing(look, f"{kind} {name}", of_node(look, name) if kind == "node" else of_entry(look, entries(), name))


def why_job(look: Snapshot, job_id: str) -> Why:
    """Explain a job. Raises UnknownJob."""
    job = look.lanes.job(job_id)
    return why_thing(look, f"job {job.id}", of_job(look, job), job)


def why_thing(look: Snapshot, thing: str, first: Sequence[Cause], job: Job | None = None) -> Why:
    """Follow the first causes of a thing to their roots, and put all into one answer.

    It leaves out things that are gone. `complete`: False where more follow than one answer reads.
    """
    kinds: Mapping[str, Callable[[str], list[Cause]]] = {
        "job": lambda name: of_job(look, look.lanes.job(name)),
        "lane": partial(of_lane, look),
    }
    found = {_key(one): one for one in first}
    queue, seen = [other for one in first for other in one.of], {thing}
    while queue and len(seen) <= MOST:
        if (other := queue.pop(0)) in seen:
            continue
        seen.add(other)
        kind, _, name = other.partition(" ")
        with suppress(UnknownJob):
            more = kinds[kind](name)
            found |= {_key(one): one for one in more if _key(one) not in found}
            queue += [follower for one in more for follower in one.of]
    causes = tuple(found.values())
    so_far = {} if job is None or job.damaged else spent(look, job, causes)
    words, complete = sentence(thing, causes, so_far, job), not set(queue) - seen
    return Why(thing, words, causes, instant(look.clock.wall), so_far, complete)


def _key(cause: Cause) -> tuple[str, str, str]:
    return cause.code, cause.thing, cause.text


def sentence(thing: str, causes: Sequence[Cause], so_far: Mapping[str, float], job: Job | None) -> str:
    """Name the first cause and its root, and what an operator keeps closed besides."""
    first = root = causes[0]
    passed = set()
    while root.of and root.thing not in passed:
        passed.add(root.thing)
        ahead = (one for one in causes if one.thing in root.of and one.thing not in passed)
        root = next(ahead, None) or next((one for one in causes if not one.of), root)
    closed = [one for one in causes if one.code in ("waiting.paused", "waiting.closed")][:1]
    words = list(dict.fromkeys(one.text for one in (first, root, *closed)))
    if job is not None and not job.over and not first.code.startswith(("running.", "damaged")):
        own = words[0].removeprefix(f"{shown_lane(thing)} ") if first.thing == thing else words[0]
        it = "it " if first.thing == thing else ""
        waited = span_text(sum(so_far.values()))
        words[0] = f"job {job.id} of key {shown_lane(job.key)}, {waited} old: {it}{own}"
    others = len({one.thing for one in causes if not one.of} - {one.thing for one in (root, *closed)})
    return "; ".join(words) + (f" (and {others} more root{'s' * (others > 1)})" if others else "")
