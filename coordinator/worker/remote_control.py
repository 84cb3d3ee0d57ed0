"""Extends the commands of Celery's remote control, such as `revoke` and `inspect active`, to jobs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Protocol, TypeVar

from celery import Celery
from celery.utils.collections import AttributeDict
from celery.utils.functional import maybe_list
from celery.utils.saferepr import saferepr
from celery.worker import control
from celery.worker.state import REVOKE_EXPIRES

from coordinator.celery_patches.declared import keep
from coordinator.errors import CoordinatorError
from coordinator.jobs import validation
from coordinator.jobs.record import fields_of_many, spec_of
from coordinator.jobs.search import living
from coordinator.runner.claim import TASK
from coordinator.store.reading import FieldReader
from coordinator.store.times import milliseconds
from coordinator.worker.inspected import Info, InspectedJobs, Planned

logger = logging.getLogger(__name__)

Reply = dict[str, object]
T = TypeVar("T")


class JobCanceller(Protocol):
    """The part of a worker's bootstep that `revoke` uses."""

    coordinated: Celery

    def cancel(self, job_id: str, terminate: bool = True) -> bool: ...


def step_of(state: AttributeDict) -> JobCanceller | None:
    """The bootstep of this worker; None if it runs no jobs."""
    return getattr(state.consumer, "coordinator_step", None)


def install() -> None:
    """Replace Celery's commands by ours. A repeated call changes nothing."""
    if control.Panel.data["revoke"].__module__ == __name__:
        return
    ours: dict[str, Callable[..., Callable[..., object]]] = {
        "revoke": revoking,
        "revoke_by_stamped_headers": revoking_by_stamps,
        "active": _active,
        "reserved": _reserved,
        "scheduled": _scheduled,
        "query_task": _query,
        "rate_limit": _without_jobs,
        "time_limit": _without_jobs,
    }
    for name, make in ours.items():
        about = control.Panel.meta[name]._replace(help=None)._asdict()
        control.Panel.register(name=name, **about)(make(control.Panel.data[name]))


def revoking(usual: Callable[..., Reply]) -> Callable[..., Reply]:
    def revoke(
        state: AttributeDict,
        task_id: str | list[str],
        terminate: bool = False,
        signal: str | None = None,
        **kwargs: object,
    ) -> Reply:
        """Revoke tasks and jobs by id: those that have not begun, and with `terminate` also those at work."""
        ids = [task_id] if isinstance(task_id, str) else list(task_id or [])
        step = step_of(state)
        if step is None:
            return usual(state, ids, terminate, signal, **kwargs)
        jobs = jobs_among(step.coordinated, ids)
        for job_id in ids if jobs is None else jobs:
            step.cancel(job_id, terminate)
        others = [task for task in ids if task not in (jobs or ())]
        if others or not jobs:
            return usual(state, others, terminate, signal, **kwargs)
        return {"ok": f"jobs {', '.join(jobs)} flagged as revoked"}

    return revoke


def revoking_by_stamps(usual: Callable[..., Reply]) -> Callable[..., Reply]:
    def revoke_by_stamped_headers(
        state: AttributeDict,
        headers: dict[str, object] | list[str],
        terminate: bool = False,
        signal: str | None = None,
        **kwargs: object,
    ) -> Reply:
        """Revoke tasks and jobs by stamps: those that have not begun, and with `terminate` also those at work."""
        stamps = dict(header.split("=", 1) for header in headers) if isinstance(headers, list) else headers
        step = step_of(state)
        if step is not None:
            for job_id in stamped_jobs(step.coordinated, stamps):
                step.cancel(job_id, terminate)
        return usual(state, headers, terminate, signal, **kwargs)

    return revoke_by_stamped_headers


def stamped_jobs(app: Celery, chosen: Mapping[str, object]) -> list[str]:
    """The ids of the jobs that are not over and have one of these stamps. Reads the records of all that are not."""
    stamped = []
    try:
        with closing(app.coordinator.store) as store:
            ids = list(dict.fromkeys(living(store)))
            for job_id, (spec,) in zip(ids, fields_of_many(store, ids, "spec"), strict=True):
                if '"stamps"' in spec:
                    stamps = spec_of(FieldReader({"spec": spec})).get("message", {}).get("stamps", {})
                    if any(_meet(stamps.get(name), values) for name, values in chosen.items()):
                        stamped.append(job_id)
    except CoordinatorError as error:
        logger.warning("cannot ask which jobs have the revoked stamps: %s", error)
    return stamped


def _meet(stamp: object, values: object) -> bool:
    return any(value in maybe_list(values) for value in maybe_list(stamp) or ())


def jobs_among(app: Celery, ids: Sequence[str]) -> list[str] | None:
    """The ids among these that are jobs; None if Redis does not answer. Redis keeps the other ids for a while, and
    revokes a job that is submitted with one of them later.
    """
    valid = [job_id for job_id in ids if validation.is_id(job_id)]
    try:
        with closing(app.coordinator.store) as store:
            known: list[bytes] = store.step("jobs_named", milliseconds(REVOKE_EXPIRES), *valid)
    except CoordinatorError as error:
        logger.warning("cannot ask which of the revoked tasks are jobs: %s", error)
        return None
    return [raw.decode() for raw in known]


def _active(usual: Callable[..., list[Info]]) -> Callable[..., list[Info]]:
    def active(state: AttributeDict, safe: bool = False, **kwargs: object) -> list[Info]:
        """List of tasks and jobs currently being executed."""
        jobs = _jobs(state, InspectedJobs.active)
        if safe:
            jobs = [
                {**job, "args": saferepr(tuple(job["args"] or ())), "kwargs": saferepr(job["kwargs"])} for job in jobs
            ]
        return _without_runners(usual(state, safe, **kwargs)) + jobs

    return active


def _reserved(usual: Callable[..., list[Info]]) -> Callable[..., list[Info]]:
    def reserved(state: AttributeDict, **kwargs: object) -> list[Info]:
        """List of currently reserved tasks, not including scheduled/active, and of jobs that are ready."""
        return _without_runners(usual(state, **kwargs)) + _jobs(state, InspectedJobs.reserved)

    return reserved


def _scheduled(usual: Callable[..., list[Planned]]) -> Callable[..., list[Planned]]:
    def scheduled(state: AttributeDict, **kwargs: object) -> list[Planned]:
        """List of currently scheduled ETA/countdown tasks and jobs, and of jobs that wait for their retry."""
        return usual(state, **kwargs) + _jobs(state, InspectedJobs.scheduled)

    return scheduled


def _query(usual: Callable[..., Reply]) -> Callable[..., Reply]:
    def query_task(state: AttributeDict, ids: Sequence[str], **kwargs: object) -> Reply:
        """Query for task and job information by id."""
        named = [ids] if isinstance(ids, str) else list(ids)
        return usual(state, ids, **kwargs) | {
            info["id"]: (place, info) for place, info in _jobs(state, lambda jobs: jobs.among(named))
        }

    return query_task


def _without_runners(infos: list[Info]) -> list[Info]:
    return [info for info in infos if info["name"] != TASK]


def _jobs(state: AttributeDict, look: Callable[[InspectedJobs], list[T]]) -> list[T]:
    """Look up jobs; an empty list if the worker runs none, or Redis does not answer."""
    step = step_of(state)
    if step is None:
        return []
    try:
        with closing(step.coordinated.coordinator.store) as store:
            return look(InspectedJobs(step.coordinated, store, state.hostname))
    except CoordinatorError as error:
        logger.warning("cannot ask for jobs: %s", error)
        return []


def _without_jobs(usual: Callable[..., Reply]) -> Callable[..., Reply]:
    """Keep the limits that jobs go by, and add to the command's reply that they keep them."""

    def limit(state: AttributeDict, task_name: str, *args: object, **kwargs: object) -> Reply:
        if task_name in state.app.tasks:
            keep(state.app.tasks[task_name])
        reply = usual(state, task_name, *args, **kwargs)
        if step_of(state) is not None and "ok" in reply:
            return {**reply, "ok": f"{reply['ok']}, for messages; jobs keep the limits of their submit"}
        return reply

    limit.__doc__ = usual.__doc__
    return limit
