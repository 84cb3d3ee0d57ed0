"""Checks that a task takes the arguments of a call, as Celery's `apply_async` does, also for each task in a canvas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, cast

from coordinator.core.jobs.options import Arguments
from coordinator.core.jobs.spec import InCanvas, Signature
from coordinator.errors import InvalidJob

Check = Callable[[Signature, int], Signature | None]


class CheckedTask(Protocol):
    """The attributes of a Celery task that `checked` reads."""

    name: str
    typing: bool


def checked(task: CheckedTask, arguments: Arguments, before: int) -> Arguments:
    """Check that the task takes these arguments, and return them. Raises InvalidJob where it does not.

    `before`: how many more positional arguments, results of earlier tasks, the task will get in front of these.
    Pydantic models in the arguments of a task with `pydantic=True` become dicts.
    """
    args, kwargs = [*(None,) * before, *arguments[0]], arguments[1]
    if task.typing and (header := getattr(task, "__header__", None)):
        try:
            header(*args, **kwargs)
        except TypeError as error:
            raise InvalidJob(f"{task.name}: {error}") from error
    if (dump := getattr(task, "_dump_pydantic_arguments", None)) is not None:
        args, kwargs = dump(args, kwargs)
    return list(args)[before:], dict(kwargs)


def checked_call(task: CheckedTask, signature: Signature, before: int) -> Signature:
    """Check that the task takes the arguments of a signature, as `checked` does, and return the signature with them."""
    args, kwargs = checked(task, (list(signature.get("args") or ()), dict(signature.get("kwargs") or {})), before)
    return {**signature, "args": args, "kwargs": kwargs}


def in_canvas(signature: Signature, before: int, check: Check) -> Signature:
    """Call `check(task, before)` for each task in a signature or canvas, and put the signature that it returns in the
    place of the task; None leaves the task as it is. Returns the new signature.

    `before`: how many results of earlier tasks the first tasks get in front of their own arguments. Later steps of a
    chain and the body of a chord get one.
    """
    if not hasattr(signature, "get"):
        return signature  # no signature: the check of the submit refuses it by name
    kind, kwargs = signature.get("subtask_type"), cast(InCanvas, dict(signature.get("kwargs") or {}))
    if kind == "chain":
        kwargs["tasks"] = chained(kwargs.get("tasks") or (), before, check)
    elif kind == "group":
        kwargs["tasks"] = [in_canvas(part, before, check) for part in kwargs.get("tasks") or ()]
    elif kind == "chord":
        header = kwargs.get("header") or ()
        if isinstance(header, Mapping):
            kwargs["header"] = in_canvas(header, before, check)
        else:
            kwargs["header"] = [in_canvas(part, before, check) for part in header]
        if body := kwargs.get("body"):
            kwargs["body"] = in_canvas(body, 1, check)
    elif kind is None and isinstance(signature.get("task"), str):
        return check(signature, 0 if signature.get("immutable") else before) or signature
    return cast(Signature, {**signature, "kwargs": kwargs})


def chained(tasks: Iterable[Signature], before: int, check: Check) -> list[Signature]:
    """Return the steps of a chain, each replaced as in `in_canvas`; `before` is for the first, later ones get 1."""
    return [in_canvas(step, before if number == 0 else 1, check) for number, step in enumerate(tasks)]
