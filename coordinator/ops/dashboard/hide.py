"""Hides values of jobs, events, grabs and requests in pages and JSON, according to the setting `hidden`."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import TYPE_CHECKING, cast

from coordinator.core.jobs.hidden import HIDDEN, Hidden
from coordinator.core.jobs.instances import GrabRecord
from coordinator.core.jobs.record import Job
from coordinator.core.jobs.spec import ErrorRecord
from coordinator.core.store.values import Json
from coordinator.inbox import message
from coordinator.inbox.refused import RefusedRequest
from coordinator.ops.search.events import EventRecord

if TYPE_CHECKING:
    from coordinator.coordinator import Coordinator


def shown(coordinator: Coordinator, value: object) -> object:
    """Return `value` as a page or JSON may show it: hidden values in its jobs, events, grabs and requests are
    replaced.
    """
    return _shown(coordinator._hidden, value)


def _shown(hidden: Hidden, value: object) -> object:
    if isinstance(value, Job):
        return _job(hidden, value)
    if isinstance(value, EventRecord):
        return dataclasses.replace(value, value=cast(Json, hidden.value(value.value)))
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
    """Hide the result of a grab, and those of earlier winners. Why a grab failed or was released stays visible."""
    own = cast(Json, hidden.value(grab.value)) if grab.state == "complete" else grab.value
    return dataclasses.replace(grab, value=own, earlier=tuple(_grab(hidden, one) for one in grab.earlier))


def _job(hidden: Hidden, job: Job) -> Job:
    args, kwargs = hidden.call(_task(job), job.args, job.kwargs, chained=job.step > 0)
    if hidden.everything:
        args = (HIDDEN,) if args else ()
    error, fault = _error(hidden, job.error), _error(hidden, job.fault)
    return dataclasses.replace(job, args=args, kwargs=kwargs, result=hidden.value(job.result), error=error, fault=fault)


def _task(job: Job) -> str:
    """Return the task to which a job's arguments belong; "" where the record names only the task of the rollback."""
    if job.steps:
        return job.steps[job.step]
    return "" if job.rollback or job.state == "rolling_back" else job.task


def _error(hidden: Hidden, error: ErrorRecord | None) -> ErrorRecord | None:
    """Hide the values in an error record (`args`, `parts`). The text of the error stays visible."""
    if not error:
        return error
    return cast(ErrorRecord, error | {name: hidden.value(error[name]) for name in ("args", "parts") if name in error})


def _original(hidden: Hidden, request: RefusedRequest) -> str:
    """Return the text of a refused request without its envelope, and without hidden values.

    A text that is not JSON is hidden as a whole if a hidden name occurs in it, or if it is encoded or was cut.
    """
    text = request.original
    try:
        content = base64.b64decode(text) if request.encoding == "base64" else text.encode()
        return json.dumps(hidden.value(message.opened(content)), ensure_ascii=False)
    except ValueError:
        return hidden.text(text, request.whole and request.encoding != "base64")
