"""Keeps values of arguments and results off the pages, by the names that the setting `hidden` has."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from coordinator.jobs.record import Job

if TYPE_CHECKING:
    from coordinator.client.coordinator import Coordinator

HIDDEN = "(hidden)"


def without_hidden(coordinator: Coordinator, job: Job) -> Job:
    """The job as pages may show it."""
    names = [name.lower() for name in coordinator.settings.hidden]
    if "*" in names:
        return dataclasses.replace(job, args=(HIDDEN,) if job.args else (), kwargs=_all(job.kwargs), result=HIDDEN)

    def is_hidden(name: object) -> bool:
        return any(part in str(name).lower() for part in names)

    def seen(value: object) -> object:
        if isinstance(value, Mapping):
            return {name: HIDDEN if is_hidden(name) else seen(one) for name, one in value.items()}
        return [seen(one) for one in value] if isinstance(value, list | tuple) else value

    parameters = _parameters(coordinator, job.task)[: len(job.args)]
    args = tuple(
        HIDDEN if name and is_hidden(name) else seen(value)
        for name, value in zip_longest(parameters, job.args, fillvalue=None)
    )
    kwargs = {name: HIDDEN if is_hidden(name) else seen(value) for name, value in job.kwargs.items()}
    return dataclasses.replace(job, args=args, kwargs=kwargs, result=seen(job.result))


def _all(values: Mapping[str, object]) -> dict[str, object]:
    return dict.fromkeys(values, HIDDEN)


def _parameters(coordinator: Coordinator, task: str) -> Sequence[str]:
    """The names of the task's parameters, where this process has it."""
    known = coordinator.app.tasks.get(task) if coordinator.app else None
    try:
        return list(inspect.signature(known.run).parameters) if known else []
    except (TypeError, ValueError):
        return []
