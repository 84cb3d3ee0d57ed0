"""Canvases of keyed tasks in a user's own suite: each keyed call is a job in place, and what follows is called."""

from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery, chain, chord, group

from coordinator import Coordinator, current_job
from coordinator.in_place.in_place import InPlace
from coordinator.local.redis import free_port

_NOWHERE = f"redis://127.0.0.1:{free_port()}/0"
app = Celery("mill", broker=_NOWHERE, backend=_NOWHERE, set_as_current=False)
coordinator = Coordinator(app, url=_NOWHERE)
called: list[Any] = []


@app.task(name="mill.add", shared=False, coordinate={"key": "lane/{lane}"})
def add(x: int, y: int, lane: str = "a") -> int:
    assert current_job()
    if y < 0:
        raise ValueError("below zero")
    return x + y


@app.task(name="mill.total", shared=False)
def total(numbers: list[Any]) -> Any:
    called.append(numbers)
    return sum(numbers)


@app.task(name="mill.note", shared=False)
def note(what: Any) -> None:
    called.append(what)


@app.task(name="mill.twice", shared=False)
def twice(x: int) -> int:
    return 2 * x


@pytest.fixture(autouse=True)
def jobs(coordinator_jobs: Callable[[Coordinator], InPlace]) -> InPlace:
    called.clear()
    return coordinator_jobs(coordinator)


CANVASES: dict[str, tuple[Callable[[], Any], list[Any]]] = {
    "chain": (lambda: chain(add.s(1, 1), twice.s(), add.s(3), note.s(), note.si("last")), [7, "last"]),
    "group": (lambda: group(add.s(1, 1).set(link=note.s()), add.s(2, 2)), [2]),
    "chord": (lambda: chord([add.s(number, 1) for number in (5, 3, 4)], total.s()), [[6, 4, 5]]),
    "chord of one": (lambda: chord([add.s(1, 1)], total.s()), [[2]]),
    "chord behind a step": (lambda: chain(add.s(1, 1), group(add.s(1), note.s()), total.s()), [2, [3, None]]),
    "body that is a chain": (lambda: chord([add.s(1, 1), add.s(2, 2)], chain(total.s(), note.s())), [[2, 4], 6]),
    "chains within": (lambda: chord([chain(add.s(1, 1), twice.s()), add.s(2, 2)], total.s()), [[4, 4]]),
    "chord within": (
        lambda: chord([chord([add.s(1, 1), add.s(2, 2)], total.s()), add.s(5, 5)], total.s()), [[2, 4], [6, 10]],
    ),
    "chord within, as a chain": (
        lambda: chord([chord([add.s(1, 1)], chain(total.s(), twice.s())), add.s(5, 5)], total.s()), [[2], [4, 10]],
    ),
    "failing header": (
        lambda: chord([add.s(1, 1), add.s(1, -1)], total.s().on_error(note.si("error"))), ["error"],
    ),
    "failing header of a chord within": (
        lambda: chord([chord([add.s(1, -1)], total.s()), add.s(1, 1)], total.s().on_error(note.si("error"))), ["error"],
    ),
    "failing chain within": (
        lambda: chord([chain(add.s(1, 1), add.s(-9), twice.s()), add.s(1, 1)], total.s().on_error(note.si("error"))),
        ["error"],
    ),
    "failing body": (lambda: chord([add.s(1, 1)], add.si(1, -1).on_error(note.si("error"))), ["error"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CANVASES)
def test_what_follows_on_keyed_calls_is_called_in_place(name: str) -> None:
    make, found = CANVASES[name]
    make().apply_async()
    assert called == found
