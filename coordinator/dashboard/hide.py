"""What pages and JSON may show of jobs and requests: see the setting `hidden`."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from coordinator.client.task_defaults import hidden_of
from coordinator.jobs.hidden import HIDDEN, Hidden
from coordinator.jobs.record import Job
from coordinator.lanes.view import Lane
from coordinator.warden.inbox.refused import RefusedRequest

if TYPE_CHECKING:
    from coordinator.client.coordinator import Coordinator


def job(coordinator: Coordinator, found: Job) -> Job:
    hidden = hidden_of(coordinator.app, coordinator.settings)
    if hidden.everything:
        shown: dict[str, str] = dict.fromkeys(found.kwargs, HIDDEN)
        return dataclasses.replace(found, args=(HIDDEN,) if found.args else (), kwargs=shown, result=HIDDEN)
    kwargs = {name: hidden.value(value, name) for name, value in found.kwargs.items()}
    args, result = hidden.args(found.task, found.args), hidden.value(found.result)
    return dataclasses.replace(found, args=args, kwargs=kwargs, result=result)


def lane(coordinator: Coordinator, found: Lane) -> Lane:
    return dataclasses.replace(found, runs=tuple(job(coordinator, run) for run in found.runs))


def refused(coordinator: Coordinator, request: RefusedRequest) -> RefusedRequest:
    return dataclasses.replace(
        request, original=_original(hidden_of(coordinator.app, coordinator.settings), request.original)
    )


def _original(hidden: Hidden, text: str) -> str:
    """What is no JSON has no names, so it is hidden as a whole where a hidden name stands in it."""
    try:
        return json.dumps(hidden.value(json.loads(text)), ensure_ascii=False)
    except ValueError:
        return hidden.text(text)
