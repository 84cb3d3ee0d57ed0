"""Runs a check around each method of Celery's AsyncResult and ResultSet that waits for results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import wraps

from celery.result import AsyncResult, ResultSet

Watch = Callable[[Sequence[str]], AbstractContextManager[object]]


def watch_waits(watch: Watch) -> None:
    """Make each wait for results run inside the context manager `watch(ids)`, which may raise instead. `ids`: of the
    results. A second call of this function changes nothing.
    """
    for kind, names in ((AsyncResult, ("get", "wait")), (ResultSet, ("join", "join_native", "iter_native"))):
        for name in names:
            usual = getattr(kind, name)
            if not hasattr(usual, "coordinator_usual"):
                setattr(kind, name, (_watched_iterator if name == "iter_native" else _watched)(usual, watch))


def _watched(usual: Callable[..., object], watch: Watch) -> Callable[..., object]:
    @wraps(usual)
    def wait(self: AsyncResult | ResultSet, *args: object, **kwargs: object) -> object:
        with watch(_ids(self)):
            return usual(self, *args, **kwargs)

    vars(wait)["coordinator_usual"] = usual
    return wait


def _watched_iterator(usual: Callable[..., Iterable[object]], watch: Watch) -> Callable[..., Iterator[object]]:
    @wraps(usual)
    def iterate(self: ResultSet, *args: object, **kwargs: object) -> Iterator[object]:
        with watch(_ids(self)):
            yield from usual(self, *args, **kwargs)

    vars(iterate)["coordinator_usual"] = usual
    return iterate


def _ids(waited: AsyncResult | ResultSet) -> list[str]:
    return [result.id for result in (waited.results if isinstance(waited, ResultSet) else [waited])]
