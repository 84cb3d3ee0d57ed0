"""Makes the commands of Celery's remote control, such as `revoke` and `inspect active`, work for jobs as well.

Each function here that takes `usual`, Celery's own command, returns the command that replaces it.
"""

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

from coordinator.core.author import Acting
from coordinator.core.celery_patches.declared import keep
from coordinator.core.celery_patches.declared import rate_limit as declared_rate
from coordinator.core.jobs import validation
from coordinator.core.jobs.record import fields_of_many, spec_of
from coordinator.core.jobs.uses import rate_quota
from coordinator.core.quotas.client import QuotaClient
from coordinator.core.runner.claim import TASK
from coordinator.core.store.reading import FieldReader
from coordinator.core.store.steps import jobs_named
from coordinator.core.store.times import milliseconds
from coordinator.core.worker.inspected import Info, InspectedJobs, Planned
from coordinator.errors import CoordinatorError

logger = logging.getLogger(__name__)

Reply = dict[str, object]
T = TypeVar("T")


class JobCanceller(Protocol):
    """The attributes of a worker's bootstep that `revoke` uses: the app, and `cancel`."""

    coordinated: Celery

    def cancel(self, job_id: str, terminate: bool = True) -> bool: ...


def step_of(state: AttributeDict) -> JobCanceller | None:
    """Return the coordinator's bootstep of this worker; None if the worker runs no jobs. `state`: as Celery passes it
    to remote control commands.
    """
    return getattr(state.consumer, "coordinator_step", None)


def install() -> None:
    """Replace Celery's remote control commands by those of this module. A second call changes nothing."""
    if control.Panel.data["revoke"].__module__ == __name__:
        return
    ours: dict[str, Callable[..., Callable[..., object]]] = {
        "revoke": revoking,
        "revoke_by_stamped_headers": revoking_by_stamps,
        "active": _active,
        "reserved": _reserved,
        "scheduled": _scheduled,
        "query_task": _query,
        "rate_limit": _rate_limit,
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
        """Revoke tasks and jobs by id: those that have not begun, and with `terminate` also those that run."""
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
        """Revoke tasks and jobs by stamps: those that have not begun, and with `terminate` also those that run."""
        stamps = dict(header.split("=", 1) for header in headers) if isinstance(headers, list) else headers
        step = step_of(state)
        if step is not None:
            for job_id in stamped_jobs(step.coordinated, stamps):
                step.cancel(job_id, terminate)
        return usual(state, headers, terminate, signal, **kwargs)

    return revoke_by_stamped_headers


def stamped_jobs(app: Celery, chosen: Mapping[str, object]) -> list[str]:
    """Return the ids of the jobs that are not over and have one of the stamps `chosen`, {name: value or list of
    values}. Reads the records of all jobs that are not over; [] if Redis does not answer.
    """
    stamped = []
    try:
        with closing(app.coordinator.store) as store:
            ids = app.coordinator._living()
            for job_id, (spec,) in zip(ids, fields_of_many(store, ids, "spec"), strict=True):
                if '"stamps"' in spec:
                    stamps = spec_of(FieldReader({"spec": spec})).get("message", {}).get("stamps", {})
                    if any(_meet(stamps.get(name), values) for name, values in chosen.items()):
                        stamped.append(job_id)
    except CoordinatorError as error:
        logger.warning("revoke by stamps: cannot read from Redis which jobs have them: %s", error)
    return stamped


def _meet(stamp: object, values: object) -> bool:
    return any(value in maybe_list(values) for value in maybe_list(stamp) or ())


def jobs_among(app: Celery, ids: Sequence[str]) -> list[str] | None:
    """Return those of the revoked `ids` that are jobs; None if Redis does not answer. Redis keeps the other ids for
    Celery's REVOKE_EXPIRES seconds, and revokes a job that is submitted with one of them in that time.
    """
    valid = [job_id for job_id in ids if validation.is_id(job_id)]
    try:
        with closing(app.coordinator.store) as store:
            return jobs_named(store, milliseconds(REVOKE_EXPIRES), *valid)
    except CoordinatorError as error:
        logger.warning("revoke: cannot read from Redis which of the ids are jobs: %s", error)
        return None


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
    """Return what `look` reads from the jobs of this worker's app; [] if the worker runs no jobs, or Redis does not
    answer.
    """
    step = step_of(state)
    if step is None:
        return []
    try:
        with closing(step.coordinated.coordinator.store) as store:
            return look(InspectedJobs(step.coordinated, store, state.hostname))
    except CoordinatorError as error:
        logger.warning("inspect: cannot read jobs from Redis: %s", error)
        return []


def _rate_limit(usual: Callable[..., Reply]) -> Callable[..., Reply]:
    """Change the rate of the fleet, too, at which jobs of a task start that has a rate limit."""

    def limit(state: AttributeDict, task_name: str, rate_limit: object, **kwargs: object) -> Reply:
        if task_name in state.app.tasks:
            keep(state.app.tasks[task_name])
        reply = usual(state, task_name, rate_limit, **kwargs)
        step, task = step_of(state), state.app.tasks.get(task_name)
        if step is None or "ok" not in reply:
            return reply
        if not declared_rate(task):
            return {**reply, "ok": f"{reply['ok']}, for messages; its jobs have no rate: name a quota that they use"}
        try:
            with closing(step.coordinated.coordinator.store) as store:
                _set_rate(QuotaClient(store), rate_quota(task_name), rate_limit)
        except CoordinatorError as error:
            return {"error": f"the rate of its jobs is as before: {error}"}
        return {**reply, "ok": f"{reply['ok']}, also for jobs over the fleet"}

    limit.__doc__ = usual.__doc__
    return limit


def _set_rate(quotas: QuotaClient, name: str, rate: object) -> None:
    acting: Acting = {"why": "control.rate_limit", "by": "celery"}
    if rate in (None, 0, "", "0"):
        quotas.drop(name, **acting)
    else:
        quotas.declare(name, None, str(rate), 1, **acting)


def _without_jobs(usual: Callable[..., Reply]) -> Callable[..., Reply]:
    """Make the command `rate_limit` or `time_limit` apply to plain messages of a task only. Its jobs keep the limits
    that the app declares, and the reply says so.
    """

    def limit(state: AttributeDict, task_name: str, *args: object, **kwargs: object) -> Reply:
        if task_name in state.app.tasks:
            keep(state.app.tasks[task_name])
        reply = usual(state, task_name, *args, **kwargs)
        if step_of(state) is not None and "ok" in reply:
            return {**reply, "ok": f"{reply['ok']}, for messages; jobs keep the limits of their submit"}
        return reply

    limit.__doc__ = usual.__doc__
    return limit
