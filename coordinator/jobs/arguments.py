"""Checks the arguments of a task, or of each task in a canvas, as Celery's `apply_async` does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, cast

from coordinator.errors import InvalidJob
from coordinator.jobs.options import Arguments
from coordinator.jobs.spec import InCanvas, Signature

Check = Callable[[Signature, int], Signature | None]


class CheckedTask(Protocol):
    """The attributes of a Celery task that the check reads."""

    name: str
    typing: bool


def checked(task: CheckedTask, arguments: Arguments, before: int) -> Arguments:
    """Check the arguments of a task, which gets `before` more of them in front, and return them.

    The models of a task with `pydantic=True` are dumped.
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
    """Do the same with the arguments of a signature."""
    args, kwargs = checked(task, (list(signature.get("args") or ()), dict(signature.get("kwargs") or {})), before)
    return {**signature, "args": args, "kwargs": kwargs}


def in_canvas(signature: Signature, before: int, check: Check) -> Signature:
    """Return the signature with what `check` returns for each task in it; None leaves a task as it is.

    `before`: the number of arguments that its first tasks get in front. A later step and the body of a chord get one,
    the result before it.
    """
    if not hasattr(signature, "get"):
        return signature  # whoever makes a job of it refuses it by name
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
    """Do the same for each step of a chain."""
    return [in_canvas(step, before if number == 0 else 1, check) for number, step in enumerate(tasks)]
