"""Makes the outcome of an attempt whose task returned `wait_for`: the job is parked until an event is set."""

from __future__ import annotations

from celery import Celery
from kombu.utils.json import dumps

from coordinator.core.events.wait import WaitFor
from coordinator.core.jobs import chain
from coordinator.core.jobs.encoding import bounded
from coordinator.core.jobs.spec import Signature, StepSpec
from coordinator.core.runner.claim import Claim
from coordinator.core.runner.own_lane import WAY_OUT, lanes_in
from coordinator.core.store.times import milliseconds
from coordinator.errors import InvalidJob


def detail_of(app: Celery, claim: Claim, wait: WaitFor) -> str:
    """Make the detail of the outcome `awaits`, as functions/rules/settle.lua reads it. Raises InvalidJob."""
    lifetime = claim.max_lifetime
    if wait.timeout > lifetime:
        raise InvalidJob(
            f"the timeout, {wait.timeout:g} s, is above the max_lifetime of the job, {lifetime:g} s: submit it with "
            f"max_lifetime={wait.timeout:g} or more"
        )
    other = ""
    if wait.otherwise is not None:
        steps = _steps(app, claim, "otherwise", wait.otherwise, 0)
        kind, task, limit = chain.advance(steps[0])
        other = f"{limit}\n{task}\n{kind}\0{dumps(steps)}"
    steps = dumps(_steps(app, claim, "then", wait.then, 1))
    detail = dumps({"event": wait.event, "timeout": milliseconds(wait.timeout), "steps": steps, "else": other})
    return bounded("its next steps have", detail, app.coordinator.settings.max_payload)


def _steps(app: Celery, claim: Claim, name: str, signature: Signature, before: int) -> list[StepSpec]:
    """Check `then` or `otherwise`, and return its steps and those that are to follow them. `before`: 1 if the first of
    them gets the value of the event.
    """
    try:
        _check_lanes(app, claim, signature, before)
        needs = claim.kind.split("\n")[2:]
        steps: list[StepSpec] = app.coordinator._requests.in_place_of_a_step(signature, needs, before)
    except (InvalidJob, TypeError, ValueError) as error:
        raise InvalidJob(f"{name}: {error}") from error
    return [*steps, *claim.spec.get("rest", ())]


def _check_lanes(app: Celery, claim: Claim, signature: Signature, before: int) -> None:
    """Raise InvalidJob for a step that needs a lane which the job does not hold, and for a canvas with a task that
    needs one which it does hold.
    """
    for number, part in enumerate(chain.tasks_of(signature)):
        for call, lanes in lanes_in(app, part, before if number == 0 else 1):
            own = [lane for lane in lanes or () if lane in claim.keys]
            if chain.is_canvas(part):
                if own:
                    raise InvalidJob(f"{call['task']} would wait for the job in its own lane {own[0]!r}: {WAY_OUT}")
            elif lanes is None or len(own) < len(lanes):
                held = ", ".join(map(repr, claim.keys)) or "no lane"
                needed = "a lane that depends on a result" if lanes is None else ", ".join(map(repr, lanes))
                raise InvalidJob(
                    f"{call['task']} is for {needed}, and the job holds {held}: call it with coordinate=False, or from "
                    "a task of this job"
                )
