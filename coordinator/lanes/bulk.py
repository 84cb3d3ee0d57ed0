"""Acts on all jobs that a filter finds: counted first, then in portions. Run again, an act does the rest.

Each portion is found and acted on at once, so that little can come between. The trail has one line for the whole act,
which its first step writes; the record of each job has the act, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast, get_args
from uuid import uuid4

from coordinator.author import Acting, act_of
from coordinator.errors import InvalidJob
from coordinator.jobs import validation
from coordinator.jobs.record import TERMINAL
from coordinator.jobs.search import STATES, JobFilter, search
from coordinator.jobs.states import End
from coordinator.lanes.plan import MOST_SHOWN, Look, Plan, of_cancel, of_retry
from coordinator.store.client import Store

Verb = Literal["cancel", "retry"]
VERBS = get_args(Verb)
PORTION = 100
_ON = {
    "cancel": tuple(state for state in STATES if state not in TERMINAL),
    "retry": ("held", "retrying", *(state for state in STATES if state in TERMINAL and state != "succeeded")),
}


class ActingOn(JobFilter, Acting, total=False):
    """A filter, and what each act takes."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an act on a filter is. `total`: of the jobs that were found at its beginning."""

    done: int
    total: int


class Bulk:
    """One act on a filter. Raises InvalidJob for a filter that names nothing, or only jobs on which it cannot act."""

    def __init__(self, store: Store, verb: Verb, to: End, wanted: JobFilter) -> None:
        self._store, self._verb, self._to = store, validation.one_of("verb", verb, VERBS), to
        named = {name: value for name, value in wanted.items() if value not in (None, "", (), [])}
        if not named:
            raise InvalidJob(f"{verb} on a filter: name at least one, such as state or key")
        states = named.get("state") or _ON[verb]
        chosen = (states,) if isinstance(states, str) else cast("tuple[str, ...]", tuple(cast("list[str]", states)))
        if not set(chosen) & set(_ON[verb]):
            raise InvalidJob(f"{verb} acts on jobs that are {', '.join(_ON[verb])}; not on {', '.join(chosen)}")
        unknown = [state for state in chosen if state not in STATES]
        self._wanted = cast(JobFilter, {**named, "state": unknown or [one for one in chosen if one in _ON[verb]]})
        self.text = " ".join(f"{name}={_text(value)}" for name, value in named.items())

    def _portions(self, most: int) -> Iterator[list[str]]:
        after = ""
        while True:
            found = search(self._store, most, after, **self._wanted)
            if found.jobs:
                yield [job.id for job in found.jobs]
            after = found.after
            if not after:
                return

    def count(self) -> int:
        return sum(len(portion) for portion in self._portions(MOST_SHOWN))

    def plan(self) -> Plan:
        """What the act would do. `hits` has the first 1,000."""
        look, ids, count = Look(self._store), list[str](), 0
        for portion in self._portions(MOST_SHOWN):
            ids += portion[: MOST_SHOWN - len(ids)]
            count += len(portion)
        jobs = look.there(ids)
        found = of_cancel(look, jobs) if self._verb == "cancel" else of_retry(look, jobs, self._to)
        return Plan(found.act, found.hits, found.starts, max(count - len(jobs), 0) + len(found.hits), found.as_of)

    def run(self, acting: Acting) -> Iterator[Progress]:
        """Act, and yield the progress: at the beginning, and after each portion."""
        done, total = 0, self.count()
        act = act_of(**acting, id=uuid4().hex, kind="jobs", name=self.text, before=f"{total} found")
        yield Progress(done, total)
        for portion in self._portions(PORTION):
            more = () if self._verb == "cancel" else (self._to,)
            for reply in self._store.step_many(f"job_{self._verb}", [(job_id, act, *more) for job_id in portion]):
                self._store.checked(reply)
            done += len(portion)
            total = max(total, done)
            yield Progress(done, total)


def _text(value: object) -> str:
    return (
        value
        if isinstance(value, str)
        else ",".join(map(str, value))
        if isinstance(value, list | tuple)
        else str(value)
    )
