"""The arguments of tasks, checked as Celery's `apply_async` checks them: of one task, and of each in a canvas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, cast

from coordinator.errors import InvalidJob
from coordinator.jobs.options import Arguments
from coordinator.jobs.spec import InCanvas, Signature

Check = Callable[[Signature, int], Arguments | None]


class Checked(Protocol):
    """A Celery task, as far as the check goes."""

    name: str
    typing: bool


def checked(task: Checked, given: Arguments, before: int) -> Arguments:
    """Those of a Celery task, behind so many that are put in front. Dumps the models of a task with `pydantic=True`."""
    args, kwargs = [*(None,) * before, *given[0]], given[1]
    if task.typing and (header := getattr(task, "__header__", None)):
        try:
            header(*args, **kwargs)
        except TypeError as error:
            raise InvalidJob(f"{task.name}: {error}") from error
    if (dump := getattr(task, "_dump_pydantic_arguments", None)) is not None:
        args, kwargs = dump(args, kwargs)
    return list(args)[before:], dict(kwargs)


def in_canvas(one: Signature, before: int, check: Check) -> Signature:
    """A signature with the arguments that `check` gives for each task in it, None = as they are.

    `before`: so many arguments are put in front of its first tasks. A later step, and the body of a chord, has one: the
    result before it.
    """
    kind, kwargs = one.get("subtask_type"), cast(InCanvas, dict(one.get("kwargs") or {}))
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
    elif kind is None and isinstance(one.get("task"), str):
        found = check(one, 0 if one.get("immutable") else before)
        return cast(Signature, one if found is None else {**one, "args": found[0], "kwargs": found[1]})
    return cast(Signature, {**one, "kwargs": kwargs})


def chained(tasks: Iterable[Signature], before: int, check: Check) -> list[Signature]:
    """The steps of a chain."""
    return [in_canvas(step, before if number == 0 else 1, check) for number, step in enumerate(tasks)]
