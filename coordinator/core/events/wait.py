"""`wait_for`: what the body of a job returns to wait for an event without a worker.

    @app.task
    def prepare(order):
        ...
        return wait_for(f"approved/{order}", timeout=3600, then=finish.s(order), otherwise=give_back.s(order))

The job is parked meanwhile, in its lanes. Redis writes the wait with the outcome of the attempt, in one step, and looks
there whether the event is set already; the step that sets the event lets the job go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.core.events.event import Event, check_event
from coordinator.core.jobs import validation
from coordinator.core.jobs.current import working
from coordinator.core.jobs.spec import Signature
from coordinator.errors import InvalidJob


@dataclass(frozen=True, slots=True)
class WaitFor:
    """A wait for the event `event`, for at most `timeout` seconds. `then`, `otherwise`: what goes on when the event is
    set, and when the time is over; no `otherwise`: the job fails then.
    """

    event: str
    timeout: float
    then: Signature
    otherwise: Signature | None


def wait_for(event: str | Event, *, timeout: float, then: object, otherwise: object = None) -> WaitFor:
    """Have the job of the calling task wait for an event from outside, without a worker: the task returns what this
    returns. The job keeps its lanes meanwhile, and gives back units of quotas as at each end of a step.

    `then`: a signature, chain, group or chord that runs as the next steps of the job, in its lanes. The first of them
    gets the value of the event in front of its arguments, unless it is immutable (`.si`). `timeout`: seconds, no more
    than the `max_lifetime` of the job. If the event is not set in that time, `otherwise` runs in the same way, without
    a value; without it the job fails with EventTimeout, and is not tried again. In a chain, the next step follows what
    ran here. Raises InvalidJob, also outside the body of a job and in a rollback.
    """
    job = working.get()
    if job is None:
        raise InvalidJob("wait_for is for the body of a job, which returns it: call the task through the coordinator")
    if job.undoing:
        raise InvalidJob("wait_for: a rollback waits for no event")
    name = check_event(event.name if isinstance(event, Event) else event)
    other = None if otherwise is None else _steps("otherwise", otherwise)
    return WaitFor(name, validation.limit("timeout", timeout), _steps("then", then), other)


def _steps(name: str, value: object) -> Signature:
    if not isinstance(value, Mapping) or not isinstance(value.get("task"), str):
        raise InvalidJob(f"wait_for: {name} is a signature, such as finish.s(42), not {validation.shown(value)}")
    found: Signature = value  # type: ignore[assignment]
    return found
