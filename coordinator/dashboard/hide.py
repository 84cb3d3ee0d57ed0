"""What pages and JSON may show of jobs, grabs and requests: see the setting `hidden`."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import TYPE_CHECKING, cast

from coordinator.jobs.hidden import HIDDEN, Hidden
from coordinator.jobs.instances import GrabRecord
from coordinator.jobs.record import Job
from coordinator.jobs.spec import ErrorRecord
from coordinator.store.values import Json
from coordinator.warden.inbox import message
from coordinator.warden.inbox.refused import RefusedRequest

if TYPE_CHECKING:
    from coordinator.client.coordinator import Coordinator


def shown(coordinator: Coordinator, value: object) -> object:
    """What a page or JSON gets of a value: the jobs, grabs and requests in it without what is hidden."""
    return _shown(coordinator._hidden, value)


def _shown(hidden: Hidden, value: object) -> object:
    if isinstance(value, Job):
        return _job(hidden, value)
    if isinstance(value, GrabRecord):
        return _grab(hidden, value)
    if isinstance(value, RefusedRequest):
        return dataclasses.replace(value, original=_original(hidden, value))
    if type(value) in (list, tuple):
        return type(value)(_shown(hidden, part) for part in value)  # type: ignore[call-arg,attr-defined]
    if type(value) is dict:
        return {name: _shown(hidden, part) for name, part in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {one.name: getattr(value, one.name) for one in dataclasses.fields(value) if one.init}
        changed = {name: new for name, part in parts.items() if (new := _shown(hidden, part)) != part}
        return dataclasses.replace(value, **changed) if changed else value
    return value


def _grab(hidden: Hidden, grab: GrabRecord) -> GrabRecord:
    """Its results; why it failed or was released is a text."""
    own = cast(Json, hidden.value(grab.value)) if grab.state == "complete" else grab.value
    return dataclasses.replace(grab, value=own, earlier=tuple(_grab(hidden, one) for one in grab.earlier))


def _job(hidden: Hidden, job: Job) -> Job:
    args, kwargs = hidden.call(_task(job), job.args, job.kwargs, chained=job.step > 0)
    if hidden.everything:
        args = (HIDDEN,) if args else ()
    error, fault = _error(hidden, job.error), _error(hidden, job.fault)
    return dataclasses.replace(job, args=args, kwargs=kwargs, result=hidden.value(job.result), error=error, fault=fault)


def _task(job: Job) -> str:
    """The task to which the arguments belong; "" where only the record of the rollback's task is left."""
    if job.steps:
        return job.steps[job.step]
    return "" if job.rollback or job.state == "rolling_back" else job.task


def _error(hidden: Hidden, error: ErrorRecord | None) -> ErrorRecord | None:
    """Its values, not its text."""
    if not error:
        return error
    return cast(ErrorRecord, error | {name: hidden.value(error[name]) for name in ("args", "parts") if name in error})


def _original(hidden: Hidden, request: RefusedRequest) -> str:
    """The request without its envelope. What is no JSON has no names, so it is hidden as a whole where a hidden name
    stands in it, or where it is encoded or cut.
    """
    text = request.original
    try:
        content = base64.b64decode(text) if request.encoding == "base64" else text.encode()
        return json.dumps(hidden.value(message.opened(content)), ensure_ascii=False)
    except ValueError:
        return hidden.text(text, request.whole and request.encoding != "base64")
