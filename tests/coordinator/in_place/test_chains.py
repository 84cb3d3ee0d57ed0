"""Chains, groups and sub-results in place, as users' suites see them: no Redis anywhere."""

from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery, chain, chord, group

from coordinator import Coordinator, InvalidJob, current_job
from coordinator.in_place.in_place import InPlace
from coordinator.local.redis import free_port

app = Celery("yard", broker=f"redis://127.0.0.1:{free_port()}/0", backend="redis://127.0.0.1:1/0", set_as_current=False)
coordinator = Coordinator(app)
called: list[str] = []


@app.task(shared=False)
def add(x: int, y: int) -> int:
    called.append("add")
    return x + y


@app.task(shared=False)
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(shared=False)
def stumble(x: int, until: int) -> int:
    called.append("stumble")
    job = current_job()
    if job and job.attempt < until:
        raise ValueError("not yet")
    return x


@app.task(shared=False)
def bad() -> None:
    called.append("bad")
    raise ValueError("bad")


@app.task(shared=False)
def spread(*parts: Any) -> Any:
    """A list of sub-results; a text is the key of a sub-job."""
    published = []
    for part in parts:
        if isinstance(part, str):
            published.append(app.AsyncResult(coordinator.submit(part, add.s(20, 1)).job_id))
        else:
            published.append(part and app.signature(part).delay())
    return published


@app.task(shared=False)
def both() -> Any:
    return group(add.s(1, 2), add.s(3, 4)).apply_async()


@pytest.fixture(autouse=True)
def jobs(coordinator_jobs: Callable[[Coordinator], InPlace]) -> InPlace:
    called.clear()
    return coordinator_jobs(coordinator)


def run(signature: Any, **options: Any) -> Any:
    return coordinator.job(coordinator.submit("k", signature, **options).job_id)


SHAPES: dict[str, tuple[Callable[[], Any], Any]] = {
    "chain": (lambda: chain(add.s(1, 2), add.s(10), add.si(5, 5), add.s(1)), 11),
    "group within": (lambda: chain(add.s(1, 2), group(add.s(10), add.s(20)), total.s()), 36),
    "group last": (lambda: chain(add.s(1, 2), group(add.s(10), add.s(20))), [13, 23]),
    "chord within": (lambda: add.s(1, 2) | chord([add.s(10), add.s(20)], total.s()) | add.s(1), 37),
    "group returned": (both.s, [3, 7]),
    "list returned": (lambda: spread.s(add.s(1, 2), None), [3, None]),
    "sub-job returned": (lambda: spread.s("other", add.s(1, 2)), [21, 3]),
    "nothing returned": (spread.s, []),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_orders_and_sub_results_come_to_the_same_as_on_a_fleet(shape: str) -> None:
    make, result = SHAPES[shape]
    job = run(make())
    assert (job.state, job.result) == ("succeeded", result)


def test_an_order_begins_at_the_step_that_is_asked_for() -> None:
    job = run(chain(add.s(1, 2), add.s(3, 4), add.s(10)), start_at=1)
    assert (job.state, job.result, called) == ("succeeded", 17, ["add", "add"])


def test_an_order_resumes_at_the_step_that_failed_and_its_attempts_are_those_of_all_steps() -> None:
    job = run(chain(add.s(1, 2), stumble.s(3), add.s(10)), max_attempts=3)
    assert (job.state, job.result, job.step) == ("succeeded", 13, 2)
    assert called == ["add", "stumble", "stumble", "stumble", "add"]
    job = run(chain(stumble.s(1, 2), bad.si()), max_attempts=2)
    assert (job.state, job.step, called[5:]) == ("failed", 1, ["stumble", "stumble", "bad"])


def test_a_sub_result_that_failed_is_a_failed_attempt() -> None:
    job = run(spread.s(add.s(1, 2), bad.s()), max_attempts=2)
    assert (job.state, job.attempt, job.error["type"]) == ("failed", 2, "SubResultFailed")
    assert called == ["add", "bad", "add", "bad"]


def test_a_sub_job_that_waits_for_its_parent_is_refused() -> None:
    job = run(spread.s("k"), max_attempts=2)
    assert (job.state, job.attempt, job.error["type"]) == ("failed", 1, "WouldDeadlock")


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(InvalidJob, match=r"unknown task 'yard\.typo'.*unknown='wait'"):
        run(app.signature("yard.typo"))
    near = bad.name.replace("bad", "badd")
    with pytest.raises(InvalidJob, match=rf"unknown task '{near}'.* did you mean '{bad.name}'\?"):
        run(app.signature(near))
