"""Explains why a thing is where it is: a chain of causes, from the thing itself to what keeps it there.

    print(coordinator.why(job="7f3"))

A chain ends with a job that runs, an instant at which something is due, an operator's decision, or a lack in the
fleet. A job that waits leads to each job that is in its way. Jobs meet in the same order in all lanes, and a job can
only run after others that were there before it, so the chain ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from coordinator.core.jobs import validation
from coordinator.core.jobs.record import Job
from coordinator.core.lanes.client import LaneClient
from coordinator.core.store.times import instant
from coordinator.errors import InvalidJob, UnknownJob
from coordinator.ops.diagnosis.cause import Cause, Why
from coordinator.ops.diagnosis.dependants import of_event
from coordinator.ops.diagnosis.entries import of_entry
from coordinator.ops.diagnosis.jobs import of_job, of_lane
from coordinator.ops.diagnosis.nodes import of_node
from coordinator.ops.diagnosis.sentence import sentence
from coordinator.ops.diagnosis.snapshot import Reasons, Snapshot
from coordinator.ops.diagnosis.spent import spent

if TYPE_CHECKING:  # explaining a job must not import the scheduler
    from coordinator.scheduler.steering import Entries

MOST = 20  # things whose causes one answer follows at most


def why_of(
    lanes: LaneClient, wanted: Mapping[str, str | None], needed: Mapping[str, Reasons],
    entries: Callable[[], Entries], kinds: Mapping[str, Callable[[str], Why]],
) -> Why:  # fmt: skip
    """Explain the one thing that `wanted` (kind -> name, or None) names. Raises InvalidJob unless it names exactly one.

    `needed`: as for Snapshot. `entries`: returns the entries of the schedule. `kinds`: kind of thing that an extension
    adds -> function that explains such a thing.
    """
    named = [(kind, name) for kind, name in wanted.items() if name is not None]
    known = dict.fromkeys(("job", "key", "node", "entry", *kinds))
    if len(named) != 1 or named[0][0] not in known:
        given = ", ".join(kind for kind, _ in named) or "nothing"
        raise InvalidJob(f"why explains one thing, {' or '.join(known)}, not {given}")
    [(kind, name)] = named
    validation.text(kind, name)
    if kind in kinds:
        return kinds[kind](name)
    snapshot = Snapshot(lanes, needed)
    if kind == "job":
        return why_job(snapshot, name)
    if kind == "key":
        key = validation.check_key(name)
        return why_thing(snapshot, f"lane {key}", of_lane(snapshot, key))
    return why_thing(
        snapshot, f"{kind} {name}", of_node(snapshot, name) if kind == "node" else of_entry(snapshot, entries(), name)
    )


def why_job(snapshot: Snapshot, job_id: str) -> Why:
    """Explain why a job is where it is. Raises UnknownJob where it has no record."""
    job = snapshot.lanes.job(job_id)
    return why_thing(snapshot, f"job {job.id}", of_job(snapshot, job), job)


def why_thing(snapshot: Snapshot, thing: str, first: Sequence[Cause], job: Job | None = None) -> Why:
    """Follow the `first` causes of a thing to the end of each chain, and put all causes into one answer.

    `job`: the thing's record, if it is a job. Things that no longer exist are left out. `Why.complete` is False where
    more causes follow than one answer reads.
    """
    kinds: Mapping[str, Callable[[str], list[Cause]]] = {
        "job": lambda name: of_job(snapshot, snapshot.lanes.job(name)),
        "lane": partial(of_lane, snapshot),
        "event": partial(of_event, snapshot),
    }
    causes_by_key = {_key(cause): cause for cause in first}
    queue, seen = [other for cause in first for other in cause.of], {thing}
    while queue and len(seen) <= MOST:
        if (other := queue.pop(0)) in seen:
            continue
        seen.add(other)
        kind, _, name = other.partition(" ")
        with suppress(UnknownJob):
            more = kinds[kind](name)
            causes_by_key |= {_key(cause): cause for cause in more if _key(cause) not in causes_by_key}
            queue += [follower for cause in more for follower in cause.of]
    causes = tuple(causes_by_key.values())
    so_far = {} if job is None or job.damaged else spent(snapshot, job, causes)
    words, complete = sentence(thing, causes), not set(queue) - seen
    return Why(thing, words, causes, instant(snapshot.clock.wall), so_far, complete)


def _key(cause: Cause) -> tuple[str, str, str]:
    return cause.code, cause.thing, cause.text
