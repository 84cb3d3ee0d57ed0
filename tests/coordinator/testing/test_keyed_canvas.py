"""Canvases of keyed tasks in a user's own suite: each keyed call is a job, and what follows is called at once."""

from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from kombu.exceptions import OperationalError

from coordinator import Coordinator, current_job
from coordinator.local.redis import free_port
from coordinator.testing.inline import InlineJobs

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


@app.task(name="mill.fail", shared=False)
def fail(x: int) -> None:
    raise ValueError(x)


@app.task(name="mill.is_job", shared=False, coordinate={"key": "job"})
def is_job() -> bool:
    return bool(current_job())


@pytest.fixture(autouse=True)
def jobs(coordinator_jobs: Callable[[Coordinator], InlineJobs]) -> InlineJobs:
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
    "failing chain within": (
        lambda: chord([chain(add.s(1, 1), add.s(-9), twice.s()), add.s(1, 1)], total.s().on_error(note.si("error"))),
        ["error"],
    ),
    "plain step with a link": (lambda: chain(add.s(1, 1), twice.s().set(link=note.s())), [4]),
    "plain step that fails": (lambda: chain(add.s(1, 1), fail.s()).on_error(note.si("error")), ["error"]),
    "step past its lane": (lambda: chain(add.s(1, 1), is_job.si().set(coordinate=False), note.s()), [False]),
    "step in its lane": (lambda: chain(add.s(1, 1), is_job.si(), note.s()), [True]),
    "failing body": (lambda: chord([add.s(1, 1)], add.si(1, -1).on_error(note.si("error"))), ["error"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CANVASES)
def test_what_follows_on_keyed_calls_is_called_at_once(name: str) -> None:
    usual, (make, found) = app.send_task, CANVASES[name]
    make().apply_async()
    assert called == found
    assert app.send_task is usual


def test_a_chord_has_its_results_in_their_order_whichever_part_ends_last() -> None:
    with coordinator.lock("lane/busy"):
        chord([add.s(1, 1, lane="busy"), add.s(2, 2)], total.s()).apply_async()
        assert not called
    assert called == [[2, 4]]


def test_an_error_of_what_follows_is_not_the_caller_s() -> None:
    app.conf.task_eager_propagates = True
    try:
        chain(add.s(1, 1), fail.s()).on_error(note.si("error")).apply_async()
    finally:
        app.conf.task_eager_propagates = False
    assert called == ["error"]


def test_a_task_of_another_app_is_published_as_ever() -> None:
    with pytest.raises(OperationalError):
        add.apply_async((1, 1), link=app.signature("far.away"), retry=False)
