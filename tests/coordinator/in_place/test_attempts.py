"""The fixture for users' suites: attempts, rollback and holding are in place what they are on a fleet."""

from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery, chain

from coordinator import Conflict, Coordinator, Job, NoRetry, current_job
from coordinator.in_place.in_place import InPlace
from coordinator.local.redis import free_port

app = Celery("attic", broker=f"redis://127.0.0.1:{free_port()}/0", set_as_current=False)
coordinator = Coordinator(app)


class Diary(list[str]):
    """What the tasks of a test did."""


class Stale(Exception):
    """Somebody else's optimistic conflict."""


diary_of_app = Diary()


@app.task(name="attic.until", shared=False)
def until(good: int, error: str = "ValueError") -> int:
    job = current_job()
    assert job
    diary_of_app.append(f"{job.attempt}")
    if job.attempt < good:
        raise {"ValueError": ValueError, "Conflict": Conflict, "Stale": Stale, "NoRetry": NoRetry}[error]("not yet")
    return job.attempt


@app.task(name="attic.undo", shared=False)
def undo(well: bool = True) -> None:
    job = current_job()
    assert job
    assert job.undoing
    message = job.undoing.error and job.undoing.error["message"]
    diary_of_app.append(f"undo {list(job.undoing.args)} {message} {job.undoing.result}")
    if not well:
        raise LookupError("nothing to undo")


@app.task(name="attic.double", shared=False)
def double(number: int) -> int:
    return 2 * number


@app.task(name="attic.request", shared=False, bind=True, max_retries=2)
def request(self: Any) -> list[Any]:
    diary_of_app.append("called")
    if self.request.retries < 1:
        raise self.retry(countdown=0)
    return [self.request.is_eager, self.request.retries, self.request.id, self.request.mine]


@pytest.fixture
def diary(coordinator_jobs: Callable[[Coordinator], InPlace]) -> Diary:
    """Of a test whose jobs run in place."""
    coordinator_jobs(coordinator)
    diary_of_app.clear()
    return diary_of_app


def ran(signature: Any, **options: Any) -> Job:
    return coordinator.job(coordinator.submit("k", signature, **options).job_id)


def test_a_job_is_rolled_back_once_its_attempts_are_used_up(diary: Diary) -> None:
    job = ran(until.s(9), max_attempts=3, rollback=undo.s())
    assert diary == ["1", "2", "3", "undo [9] not yet None"]
    assert (job.state, job.rollback, job.task, job.args) == ("rolled_back", "done", "attic.until", (9,))
    assert job.error
    assert job.error["type"] == "ValueError"


def test_a_rollback_that_raises_is_a_double_fault_with_both_causes(diary: Diary) -> None:
    job = ran(until.s(9), rollback=undo.s(False))
    assert (job.state, job.rollback) == ("double_fault", "failed")
    assert job.error
    assert job.fault
    assert (job.error["message"], job.fault["message"]) == ("not yet", "nothing to undo")
    assert ran(double.s(4)).result == 8


def test_headers_of_a_user_are_seen_and_override_no_field_of_the_request(diary: Diary) -> None:
    headers = {"is_eager": False, "retries": 9, "id": "another", "mine": 1}
    job = ran(request.s().set(headers=headers), max_attempts=2)
    assert (job.state, job.result, diary) == ("succeeded", [True, 1, job.id, 1], ["called", "called"])


def test_what_succeeds_in_time_is_not_rolled_back(diary: Diary) -> None:
    job = ran(until.s(3), max_attempts=3, rollback=undo.s())
    assert (job.state, job.rollback, diary) == ("succeeded", None, ["1", "2", "3"])


def test_no_retry_is_the_last_attempt(diary: Diary) -> None:
    assert (ran(until.s(9, "NoRetry"), max_attempts=5).state, diary) == ("failed", ["1"])


@pytest.mark.parametrize("error", ["Conflict", "Stale"])
def test_conflicts_are_not_counted_but_bounded(diary: Diary, error: str) -> None:
    assert ran(until.s(5, error), retry_on=[Stale]).result == 5
    diary.clear()
    assert ran(until.s(99, error), retry_on=[Stale], max_attempts=9).state == "failed"
    assert len(diary) == 21


def test_attempts_count_tries_of_an_order_and_no_steps_and_a_rollback_is_given_the_step_that_failed(
    diary: Diary,
) -> None:
    assert ran(chain(until.s(2), double.s(), until.s()), max_attempts=9).result == 4
    assert diary == ["1", "2", "2", "3", "4"]
    diary.clear()
    job = ran(chain(until.s(2), double.s(), until.s(9).set(immutable=True)), max_attempts=3, rollback=undo.s())
    assert (job.state, job.step, job.attempt, job.args) == ("rolled_back", 2, 4, (9,))
    assert diary == ["1", "2", "2", "3", "undo [9] not yet 4"]


def test_a_held_job_keeps_its_lane_until_somebody_decides(diary: Diary) -> None:
    held = ran(until.s(2), on_failure="hold", rollback=undo.s())
    assert coordinator.wait(held.id).state == "held"
    after = coordinator.submit("k", double.s(1))
    assert coordinator.job(after.job_id).state == "waiting"
    assert coordinator.retry(held.id, why="mended") == "succeeded"
    assert coordinator.job(after.job_id).state == "succeeded"
    other = ran(until.s(99), on_failure="hold")
    after = coordinator.submit("k", double.s(2))
    assert coordinator.cancel(other.id, why="given up") == "cancelled"
    assert coordinator.job(after.job_id).result == 4


def test_an_order_that_was_rolled_back_begins_again_at_its_first_step(diary: Diary) -> None:
    held = ran(chain(until.s(1), until.si(4)), on_failure="hold", rollback=undo.s())
    assert (held.state, held.step, held.rollback) == ("held", 1, "done")
    assert coordinator.retry(held.id, why="mended") == "succeeded"
    assert diary == ["1", "1", "undo [4] not yet 1", "4", "4"]
