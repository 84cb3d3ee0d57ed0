"""After the end of a task: Celery's own code sends its links, goes on with its chain and counts its part of a chord.

A worker does that while the task's request lies on its stack, so that whatever it publishes becomes the task's child.
Here a job is over, and its request is made anew from its record.
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

from coordinator.broker.confirmed import TWICE, confirmed, confirming
from coordinator.broker.transport import is_amqp
from coordinator.errors import LaneFull, Locked
from coordinator.jobs.record import Job
from coordinator.jobs.spec import Signature, Spec

logger = logging.getLogger(__name__)

_LINKS = UUID("0f9d2a52-6d0e-5c0c-9a8e-3a1f4b6f7c11")  # the namespace of their ids
_FOR_GOOD = (TypeError, ValueError, EncodeError, LaneFull, Locked)


class Caller(NamedTuple):
    """An id under which somebody waits for the end of a job: its own, or that of a call that it stands for.

    `spec`: of the call, with its links and its place in a canvas.
    """

    id: str
    task: str
    spec: Spec


class Ended(NamedTuple):
    """How the job ended, as Celery says it."""

    state: str
    result: object
    trace: str | None


def ended(job: Job, error: BaseException | None, trace: str) -> Ended:
    if job.state == "succeeded":
        return Ended(states.SUCCESS, job.result, None)
    if job.state in ("cancelled", "expired"):
        reason = "expired" if job.state == "expired" else "terminated" if job.attempt else "revoked"
        return Ended(states.REVOKED, TaskRevokedError(reason), None)
    return Ended(states.FAILURE, error, trace)


def request_of(
    args: tuple[object, ...], kwargs: dict[str, object], node: str | None, caller: Caller, kept: bool,
    children: Sequence[AsyncResult] = (), fence: int | None = None,
) -> Context:  # fmt: skip
    """The request of a task that is over. `children`: those that its body published. `fence`: of its last attempt."""
    message = dict(caller.spec.get("message", {}))
    child_of = message.pop("child_of", None)
    return Context(
        {"root_id": caller.id, **message, **({"coordinator_parent": child_of} if child_of else {})},
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
    """As Celery's tracer does after the body. Store the result where it is `kept`.

    Celery leaves the chain behind a revoked task alone, and a chord waits for it for ever. Where the call was
    `turned_away` nobody revoked it, and its chain ends with it.
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
    """As the last act of `mark_as_failure`. Celery's own code takes no producer for them."""
    if not request.errbacks:
        return
    if not is_amqp(app.conf.broker_write_url):
        app.backend._call_task_errbacks(request, end.result, end.trace)
        return
    request.errbacks = [app.signature(one).clone().set(retry_policy=TWICE) for one in request.errbacks]
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
    """Under the same id whenever this end is told, so that a keyed link is one job. A canvas names its own parts."""
    fence = getattr(request, "coordinator_fence", None)
    if fence is None or link.subtask_type or link.options.get("task_id"):
        return link
    return link.clone().set(task_id=str(uuid5(_LINKS, f"{request.id} {fence} {number}")))


@contextmanager
def _refused(app: Celery, one: CelerySignature, chain: list[Signature]) -> Iterator[None]:
    """Nobody hears an error of a call that comes after the end of a job. Where another try would be refused again, the
    call fails under its own id, and so does what was to follow it.
    """
    try:
        yield
    except _FOR_GOOD as error:
        logger.exception("%s cannot be called after the end of a job", one.task)
        options, canvas = one.options, [one] if one.subtask_type else []
        request = Context(
            id=options.get("task_id"), task=one.task, args=one.args, kwargs=one.kwargs, chord=options.get("chord"),
            group=options.get("group_id"), group_index=options.get("group_index"), chain=[*canvas, *chain],
            errbacks=options.get("link_error"), delivery_info={},
        )  # fmt: skip
        kept = request.id is not None and has_results(app)
        app.backend.mark_as_failure(request.id, error, request=request, store_result=kept)


def has_results(app: Celery) -> bool:
    return not isinstance(app.backend, DisabledBackend)


@contextmanager
def _on_the_stack(app: Celery, request: Context) -> Iterator[None]:
    """The messages published meanwhile are children of the task. A task that the app lacks has none."""
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
