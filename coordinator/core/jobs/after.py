"""The option `after` of a submit: the jobs and events for which a job waits before it stands in a line, its causes.

Redis keeps them as text: the policy for causes that end badly, and then a line `<argument> <cause>` for each. A cause
is the id of a job, or the byte 1 and the name of an event. `argument`: by which the job gets the cause's result, "" =
it does not.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from typing import Final, Protocol, cast, runtime_checkable

from coordinator.core.jobs import validation
from coordinator.errors import InvalidJob

EVENT: Final = "\1"  # before the name of an event
MOST: Final = 1000  # causes of one job
POLICIES = ("fail", "run", "hold")


@runtime_checkable
class _Event(Protocol):
    @property
    def cause(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Wait:
    """One cause of a job. `job_id`: "" for an event; `event`: "" for a job; `argument`: by which the job gets its
    result, "" = it does not. `open`: the job waits for it still, or is held since it ended without success.
    """

    job_id: str
    event: str
    argument: str = ""
    open: bool = False


def text_of_after(after: object, on_failure_of: object, keywords: Mapping[str, object]) -> str:
    """Check the options `after` and `on_failure_of`, and write them as Redis keeps them. `keywords`: the arguments that
    the caller names already. Raises InvalidJob.
    """
    policy = validation.one_of("on_failure_of", cast(str, on_failure_of), POLICIES)
    named = _named(after)
    if len(named) > MOST:
        raise InvalidJob(f"after has {len(named)} causes; at most {MOST}: let some jobs wait for others in between")
    for argument, _ in named:
        if argument in keywords:
            raise InvalidJob(f"after hands a result on as {argument!r}, which the signature names, too")
    return "\n".join([policy, *dict.fromkeys(f"{argument} {cause}" for argument, cause in named)])


def _named(after: object) -> list[tuple[str, str]]:
    """Arguments and causes in pairs."""
    if isinstance(after, Mapping):
        for argument in after:
            if not isinstance(argument, str) or not argument.isidentifier():
                raise InvalidJob(f"after hands results on by names of arguments, not by {validation.shown(argument)}")
        return [(argument, _cause(cause)) for argument, cause in after.items()]
    if isinstance(after, str) or not isinstance(after, Iterable):
        after = [after]
    return [("", _cause(cause)) for cause in after]


def _cause(cause: object) -> str:
    if isinstance(cause, _Event):
        return cause.cause
    job_id = validation.id_of(getattr(cause, "_result_id", cause))
    if not validation.is_id(job_id):
        raise InvalidJob(f"after names a job by its id or by its Submission, not by {validation.shown(cause)}")
    return job_id


def waits_in(text: str, open_: Container[str] = ()) -> tuple[str, tuple[Wait, ...]]:
    """Read the policy and the causes from the field `after` of a record. `open_`: those that the job waits for."""
    policy, *lines = text.split("\n")
    parts = [line.partition(" ") for line in lines]
    if policy not in POLICIES or not all(cause for *_, cause in parts):
        raise ValueError(text)
    return policy, tuple(
        Wait("" if cause.startswith(EVENT) else cause, _event_of(cause), argument, cause in open_)
        for argument, _, cause in parts
    )


def _event_of(cause: str) -> str:
    return cause[1:] if cause.startswith(EVENT) else ""


def in_order(after: Sequence[tuple[str, str]]) -> list[int]:
    """The order in which to submit jobs so that each comes behind its causes: indexes. `after`: for each job its id,
    and its field `after`, "" where it has none. Otherwise the order stays. Raises InvalidJob, which names a circle.
    """
    places = {job_id: place for place, (job_id, _) in enumerate(after)}
    causes = [[places[wait.job_id] for wait in _waits(text) if wait.job_id in places] for _, text in after]
    graph = TopologicalSorter(dict(enumerate(causes)))
    try:
        graph.prepare()
    except CycleError as error:
        ring = " after ".join(after[place][0] for place in reversed(error.args[1]))
        raise InvalidJob(f"the jobs would wait for each other: {ring}") from None
    order: list[int] = []
    free: list[int] = []
    while graph.is_active():
        for place in graph.get_ready():
            heappush(free, place)
        order.append(heappop(free))
        graph.done(order[-1])
    return order


def causes_within(after: Sequence[tuple[str, str]]) -> set[str]:
    """The ids of the jobs for which others of the same call wait."""
    ids = {job_id for job_id, _ in after}
    return {wait.job_id for _, text in after for wait in _waits(text)} & ids


def _waits(text: str) -> tuple[Wait, ...]:
    return waits_in(text)[1] if text else ()
