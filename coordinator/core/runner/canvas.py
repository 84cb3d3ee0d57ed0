"""Calls Celery's own code to publish the links of an ended job, continue its chain and count its part of a chord.

In a worker, that code runs while Celery's task stack has the request of the task, so that each published message gets
the task as its parent. For an ended job, the request is built again from the job's record, and put on the stack.
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

from coordinator.core.broker import is_amqp
from coordinator.core.celery_patches.confirmed import TWICE, confirmed, confirming
from coordinator.core.jobs.record import Job
from coordinator.core.jobs.spec import Signature, Spec
from coordinator.errors import JobFailed, LaneFull, Locked

logger = logging.getLogger(__name__)

# The namespace of the task ids of link callbacks: a link that is published again gets the same id as before.
_LINKS = UUID("0f9d2a52-6d0e-5c0c-9a8e-3a1f4b6f7c11")
# Errors of publishing a task that no retry can mend: the task is marked as failed.
_FOR_GOOD = (TypeError, ValueError, EncodeError, LaneFull, Locked)


class Caller(NamedTuple):
    """A call that gets its result from a job: the job's own call, or one that was skipped or coalesced into the job.

    `id`: the task id under which the result is stored; `spec`: the links of the call, and its place in a canvas.
    """

    id: str
    task: str
    spec: Spec


class Ended(NamedTuple):
    """How a job ended, in Celery's terms: task state, result (an exception unless it succeeded), traceback text."""

    state: str
    result: object
    trace: str | None


def ended(job: Job, error: BaseException | None, trace: str) -> Ended:
    """Translate the state of an ended job into Celery's: SUCCESS, REVOKED (cancelled, expired) or FAILURE."""
    if job.state == "succeeded":
        return Ended(states.SUCCESS, job.result, None)
    if job.state in ("cancelled", "expired"):
        reason = "expired" if job.state == "expired" else "terminated" if job.attempt else "revoked"
        return Ended(states.REVOKED, TaskRevokedError(reason), None)
    return Ended(states.FAILURE, raisable(error, job), trace)


def raisable(error: BaseException | None, job: Job) -> BaseException | None:
    """Return the exception that `AsyncResult.get` shall raise for a failed job: `error`, or a JobFailed in place of an
    error such as SystemExit or KeyboardInterrupt, which would end the process that calls `get`.
    """
    if error is None or isinstance(error, Exception):
        return error
    return JobFailed(job.id, job.state, f"{type(error).__name__}: {error}")


def request_of(
    args: tuple[object, ...], kwargs: dict[str, object], node: str | None, caller: Caller, kept: bool,
    children: Sequence[AsyncResult] = (), fence: int | None = None, tries: int = 0,
) -> Context:  # fmt: skip
    """Build Celery's request of a task that has ended, for the call `caller`.

    `node`: the worker that ran the task; `kept`: True if its result is stored; `children`: the tasks that its body
    published; `fence`: of the job's last attempt; `tries`: how many earlier attempts raised an error.
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


def go_on(app: Celery, request: Context, end: Ended, kept: bool, coalesced: bool = False) -> None:
    """Do for an ended job what Celery's tracer does after a task's body: publish the links, the next task of the chain
    or the body of the chord, and store the result if `kept` is True.

    After a revoked task, Celery drops the rest of its chain, and a chord waits for ever. `coalesced`: True for a call
    that was skipped or coalesced into the job. If the job was revoked, such a call was not: it is marked as failed, so
    that its chain and its chord end, too.
    """
    backend = app.backend
    with _on_the_stack(app, request):
        if end.state == states.SUCCESS:
            _publish(app, request, end.result)
            backend.mark_as_done(request.id, end.result, request, kept)
        elif end.state == states.REVOKED and coalesced:
            how = {"call_errbacks": False, "state": end.state}
            backend.mark_as_failure(request.id, end.result, request=request, store_result=kept, **how)
        elif end.state == states.REVOKED:
            backend.mark_as_revoked(request.id, str(end.result), request, kept)
        else:
            how = {"store_result": kept, "call_errbacks": False}
            backend.mark_as_failure(request.id, end.result, end.trace, request=request, **how)
            _call_errbacks(app, request, end)


def _call_errbacks(app: Celery, request: Context, end: Ended) -> None:
    """Call the errbacks of a failed task, as `Backend.mark_as_failure` does at its end. With an AMQP broker, they are
    published with publisher confirms, which Celery's own code does not ask for.
    """
    if not request.errbacks:
        return
    if not is_amqp(app.conf.broker_write_url):
        app.backend._call_task_errbacks(request, end.result, end.trace)
        return
    request.errbacks = [app.signature(errback).clone().set(retry_policy=TWICE) for errback in request.errbacks]
    with confirming(app):
        app.backend._call_task_errbacks(request, end.result, end.trace)


def _publish(app: Celery, request: Context, result: object) -> None:
    """Publish the links of a task that succeeded and the next task of its chain, as `celery.app.trace` does; with an
    AMQP broker, with publisher confirms.
    """
    if not (request.callbacks or request.chain):
        return
    about: dict[str, object] = {"parent_id": request.id, "root_id": request.root_id or request.id}
    if not is_amqp(app.conf.broker_write_url):
        return _publish_with(app, request, result, about)
    with confirmed(app) as producer:
        _publish_with(app, request, result, about | {"producer": producer, "retry_policy": TWICE})


def _publish_with(app: Celery, request: Context, result: object, about: dict[str, object]) -> None:
    links = [_named(app.signature(link), request, number) for number, link in enumerate(request.callbacks or ())]
    if len(links) > 1:  # one group of all single links, as `celery.app.trace` makes it, for the same list of children
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
    """Return the link callback with a task id made of the job's id, its fence and the `number` of the link. Where the
    end of a job is published twice, a keyed link then runs only once. A canvas, or a link with an id, stays as it is.
    """
    fence = getattr(request, "coordinator_fence", None)
    if fence is None or link.subtask_type or link.options.get("task_id"):
        return link
    return link.clone().set(task_id=str(uuid5(_LINKS, f"{request.id} {fence} {number}")))


@contextmanager
def _refused(app: Celery, call: CelerySignature, chain: list[Signature]) -> Iterator[None]:
    """Catch an error of publishing `call` in this block that no retry can mend, and mark `call` and the tasks `chain`
    that were to follow it as failed. The job before them has ended, so nothing else would report the error.
    """
    try:
        yield
    except _FOR_GOOD as error:
        logger.exception("task %s cannot be called after the end of a job, and is marked as failed", call.task)
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
    """Put `request` on Celery's task stack for this block, so that messages published in it get the request's task as
    their parent. Does nothing if the app has no task of that name.
    """
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
