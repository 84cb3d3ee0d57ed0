"""Wraps `get` and `join` of Celery's results in a check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import wraps

from celery.result import AsyncResult, ResultSet


def watch_waits(watch: Callable[[Sequence[str]], AbstractContextManager[object]]) -> None:
    """Run each wait for results inside `watch(ids)`, which may raise. A repeated call changes nothing."""
    for kind, names in ((AsyncResult, ("get",)), (ResultSet, ("join", "join_native"))):
        for name in names:
            usual = getattr(kind, name)
            if not hasattr(usual, "coordinator_usual"):
                setattr(kind, name, _watched(usual, watch))


def _watched(
    usual: Callable[..., object], watch: Callable[[Sequence[str]], AbstractContextManager[object]]
) -> Callable[..., object]:
    @wraps(usual)
    def wait(self: AsyncResult | ResultSet, *args: object, **kwargs: object) -> object:
        with watch([result.id for result in (self.results if isinstance(self, ResultSet) else [self])]):
            return usual(self, *args, **kwargs)

    vars(wait)["coordinator_usual"] = usual
    return wait
