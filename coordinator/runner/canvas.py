"""Has Celery's own code publish the links of an ended job, continue its chain and count its part of a chord.

A worker does this while the task's request is on its stack, so that whatever it publishes becomes the task's child. For
a job that is over, the request is rebuilt from its record.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from uuid import UUID, uuid5

from celery import Celery, group, states
from celery._state import _task_stack
from celery.app.task import Context
from celery.backends.base import DisabledBackend
from celery.canvas import Signature as CelerySignature
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult
from kombu.exceptions import EncodeError

from coordinator.broker import is_amqp
from coordinator.celery_patches.confirmed import TWICE, confirmed, confirming
from coordinator.errors import JobFailed, LaneFull, Locked
from coordinator.jobs.record import Job
from coordinator.jobs.spec import Signature, Spec

logger = logging.getLogger(__name__)

_LINKS = UUID("0f9d2a52-6d0e-5c0c-9a8e-3a1f4b6f7c11")  # the namespace of their ids
_FOR_GOOD = (TypeError, ValueError, EncodeError, LaneFull, Locked)


class Caller(NamedTuple):
    """An id whose result comes from a job: the job's own, or that of a call that was skipped or coalesced into the job.

    `spec`: of the call, with its links and its place in a canvas.
    """

    id: str
    task: str
    spec: Spec


class Ended(NamedTuple):
    """How the job ended, in Celery's terms."""

    state: str
    result: object
    trace: str | None


def ended(job: Job, error: BaseException | None, trace: str) -> Ended:
    if job.state == "succeeded":
        return Ended(states.SUCCESS, job.result, None)
    if job.state in ("cancelled", "expired"):
        reason = "expired" if job.state == "expired" else "terminated" if job.attempt else "revoked"
        return Ended(states.REVOKED, TaskRevokedError(reason), None)
    return Ended(states.FAILURE, raisable(error, job), trace)


def raisable(error: BaseException | None, job: Job) -> BaseException | None:
    """The error that `get` raises. A SystemExit or KeyboardInterrupt of the task is wrapped, since it would end the
    caller's process.
    """
    if error is None or isinstance(error, Exception):
        return error
    return JobFailed(job.id, job.state, f"{type(error).__name__}: {error}")


def request_of(
    args: tuple[object, ...], kwargs: dict[str, object], node: str | None, caller: Caller, kept: bool,
    children: Sequence[AsyncResult] = (), fence: int | None = None, tries: int = 0,
) -> Context:  # fmt: skip
    """The request of a task that is over. `children`: what its body published. `fence`: of its last attempt. `tries`:
    those before it that raised.
    """
    sent = caller.spec.get("message", {})
    message, retries = dict(sent), sent.get("retries", 0) + tries
    child_of = message.pop("child_of", None)
    return Context(
        {"root_id": caller.id, **message, **({"coordinator_parent": child_of} if child_of else {}), "retries": retries},
        id=caller.id,
        task=caller.task,
        args=args,
        kwargs=kwargs,
        hostname=node,
        called_directly=False,
        correlation_id=caller.id,
        ignore_result=not kept,
        callbacks=caller.spec.get("link"),
        errbacks=caller.spec.get("link_error"),
        headers=caller.spec.get("headers"),
        delivery_info={},
        _children=[*children],
        coordinator_fence=fence,
    )


def go_on(app: Celery, request: Context, end: Ended, kept: bool, turned_away: bool = False) -> None:
    """Do what Celery's tracer does after the body: publish what follows, and store the result if it is `kept`.

    After a revoked task, Celery ignores the rest of its chain, and a chord waits for ever. A call that was
    `turned_away` was not revoked by anybody: its chain ends with it.
    """
    backend = app.backend
    with _on_the_stack(app, request):
        if end.state == states.SUCCESS:
            _publish(app, request, end.result)
            backend.mark_as_done(request.id, end.result, request, kept)
        elif end.state == states.REVOKED and turned_away:
            how = {"call_errbacks": False, "state": end.state}
            backend.mark_as_failure(request.id, end.result, request=request, store_result=kept, **how)
        elif end.state == states.REVOKED:
            backend.mark_as_revoked(request.id, str(end.result), request, kept)
        else:
            how = {"store_result": kept, "call_errbacks": False}
            backend.mark_as_failure(request.id, end.result, end.trace, request=request, **how)
            _call_errbacks(app, request, end)


def _call_errbacks(app: Celery, request: Context, end: Ended) -> None:
    """Call the errbacks, as the end of `mark_as_failure` does, but with confirms: Celery's code takes no producer."""
    if not request.errbacks:
        return
    if not is_amqp(app.conf.broker_write_url):
        app.backend._call_task_errbacks(request, end.result, end.trace)
        return
    request.errbacks = [app.signature(errback).clone().set(retry_policy=TWICE) for errback in request.errbacks]
    with confirming(app):
        app.backend._call_task_errbacks(request, end.result, end.trace)


def _publish(app: Celery, request: Context, result: object) -> None:
    """The links and the next step of the chain, as `celery.app.trace` publishes them."""
    if not (request.callbacks or request.chain):
        return
    about: dict[str, object] = {"parent_id": request.id, "root_id": request.root_id or request.id}
    if not is_amqp(app.conf.broker_write_url):
        return _publish_with(app, request, result, about)
    with confirmed(app) as producer:
        _publish_with(app, request, result, about | {"producer": producer, "retry_policy": TWICE})


def _publish_with(app: Celery, request: Context, result: object, about: dict[str, object]) -> None:
    links = [_named(app.signature(link), request, number) for number, link in enumerate(request.callbacks or ())]
    if len(links) > 1:  # the children are those that Celery would name
        single = [link for link in links if not isinstance(link, group)]
        links = [link for link in links if isinstance(link, group)] + ([group(single, app=app)] if single else [])
    for link in links:
        with _refused(app, link, []):
            link.apply_async((result,), **about)
    if request.chain:
        step, rest = app.signature(request.chain[-1]), request.chain[:-1]
        with _refused(app, step, rest):
            step.apply_async((result,), chain=rest, **about)


def _named(link: CelerySignature, request: Context, number: int) -> CelerySignature:
    """Give a link the same id each time that this end is published, so that a keyed link runs only once. A canvas names
    its own parts.
    """
    fence = getattr(request, "coordinator_fence", None)
    if fence is None or link.subtask_type or link.options.get("task_id"):
        return link
    return link.clone().set(task_id=str(uuid5(_LINKS, f"{request.id} {fence} {number}")))


@contextmanager
def _refused(app: Celery, call: CelerySignature, chain: list[Signature]) -> Iterator[None]:
    """Mark a call as failed under its own id, with all that follows it, if its publish raises an error that a retry
    would raise again: after the end of a job there is no caller to get the error.
    """
    try:
        yield
    except _FOR_GOOD as error:
        logger.exception("%s cannot be called after the end of a job", call.task)
        options, canvas = call.options, [call] if call.subtask_type else []
        request = Context(
            id=options.get("task_id"), task=call.task, args=call.args, kwargs=call.kwargs, chord=options.get("chord"),
            group=options.get("group_id"), group_index=options.get("group_index"), chain=[*canvas, *chain],
            errbacks=options.get("link_error"), delivery_info={},
        )  # fmt: skip
        kept = request.id is not None and has_results(app)
        app.backend.mark_as_failure(request.id, error, request=request, store_result=kept)


def has_results(app: Celery) -> bool:
    return not isinstance(app.backend, DisabledBackend)


@contextmanager
def _on_the_stack(app: Celery, request: Context) -> Iterator[None]:
    """Make what is published meanwhile a child of the task, unless the app does not know the task."""
    task = app.tasks.get(request.task)
    if task is None:
        yield
        return
    _task_stack.push(task)
    task.request_stack.push(request)
    try:
        yield
    finally:
        task.request_stack.pop()
        _task_stack.pop()
