"""Attempts on a real worker: how many, when, and who waits meanwhile."""

from typing import Any

from coordinator import Conflict
from coordinator.core.jobs.options import Backoff
from tests.fleet.mishaps import MODULE, cause, gaps, marks, tasks_of
from tests.harness.fleet import Fleet
from tests.harness.standing import Node

NODE = Node("shop", 3, ("-I", MODULE), {"sweep": 0.05, "retry_delay": 0.01})


def at_most(attempts: int | None) -> Any:
    """Tried again at once; None: as often as the task says."""
    return {"retry_delay": 0} | ({} if attempts is None else {"max_attempts": attempts})


def test_a_job_may_raise_as_often_as_it_has_attempts(fleet: Fleet) -> None:
    submit, shop = fleet.coordinator.submit, fleet.shop
    found = {most: submit("k", shop.fail.s(f"{most}"), **at_most(most)).id for most in (1, 3, None)}
    last = submit("k", shop.work.s("next"))
    assert fleet.coordinator.wait(last.id, 60).state == "succeeded"
    assert marks(fleet) == [
        "1 begin", *["3 begin"] * 3, "None begin", "next begin", "next end",
    ]  # fmt: skip
    assert [fleet.coordinator.job(job_id).attempt for job_id in found.values()] == [1, 3, 1]


def test_a_job_that_fails_twice_then_succeeds_is_called_three_times_and_never_rolled_back(fleet: Fleet) -> None:
    task = tasks_of(fleet).until.s("job", 3)
    undo = fleet.shop.undo.s("job")
    job = fleet.coordinator.submit("k", task, max_attempts=3, retry_delay=0, rollback=undo)
    found = fleet.coordinator.wait(job.id, 60)
    assert (found.state, found.result, found.attempt, found.losses, found.rollback) == ("succeeded", 3, 3, 0, None)
    assert marks(fleet) == ["job begin"] * 3 + ["job end"]
    counts = fleet.coordinator.counts()
    assert (counts["retries"], counts.get("losses", 0)) == (2, 0)


def test_a_retry_delay_is_a_number_a_list_or_a_policy(fleet: Fleet) -> None:
    given: dict[str, Any] = {"number": 0.4, "list": [0.1, 0.6], "policy": Backoff(0.3, 9, jitter=False)}
    least = {"number": [0.4, 0.4], "list": [0.1, 0.6], "policy": [0.3, 0.6]}
    for name, delay in given.items():
        fleet.coordinator.submit(name, fleet.shop.fail.s(name), job_id=name, max_attempts=3, retry_delay=delay)
    for name in given:
        assert fleet.coordinator.wait(name, 60).state == "failed"
        found = gaps(fleet.stamps(name, "begin"))
        assert all(low <= gap < low + 20 for low, gap in zip(least[name], found, strict=True)), (name, found)


def test_an_attempt_that_overran_and_one_that_names_its_countdown_wait_as_long_as_is_said(fleet: Fleet) -> None:
    shop, submit = fleet.shop, fleet.coordinator.submit
    submit("a", shop.work.s("late", 30), job_id="late", time_limit=2, max_attempts=2, retry_delay=1.0)
    submit("b", tasks_of(fleet).insists.s("self", 0.5), job_id="self", retry_delay=60)
    submit("a", shop.work.s("after"), job_id="after")
    found = [fleet.coordinator.wait(name, 60) for name in ("late", "self")]
    assert [(job.state, job.attempt, job.losses) for job in found] == [("failed", 2, 0), ("failed", 3, 0)]
    assert cause(found[0]) == "TimedOut"
    assert 1.0 <= gaps(fleet.stamps("late", "begin"))[0] < 25
    assert all(0.5 <= gap < 25 for gap in gaps(fleet.stamps("self", "begin")))
    assert fleet.coordinator.wait("after", 60).state == "succeeded"


def test_no_retry_ends_the_attempts_at_once(fleet: Fleet) -> None:
    task = tasks_of(fleet).until.s("job", 9, "NoRetry")
    job = fleet.coordinator.submit("k", task, max_attempts=5, retry_delay=0)
    found = fleet.coordinator.wait(job.id, 60)
    assert (found.state, found.attempt, cause(found)) == ("failed", 1, "NoRetry")


def test_what_retries_itself_keeps_its_place_and_max_attempts_bounds_it(fleet: Fleet) -> None:
    tasks, submit = tasks_of(fleet), fleet.coordinator.submit
    calls = {(task, most): most or 3 for task in (tasks.insists, tasks.insists_by_itself) for most in (None, 2, 5)}
    for i, (task, most) in enumerate(calls):
        submit("k", task.s(f"job{i}"), job_id=f"job{i}", **at_most(most))
    after = submit("k", fleet.shop.work.s("after"))
    assert fleet.coordinator.wait(after.id, 60).state == "succeeded"
    begins = [f"job{i} begin" for i, count in enumerate(calls.values()) for _ in range(count)]
    assert marks(fleet) == [*begins, "after begin", "after end"]
    found = [fleet.coordinator.job(f"job{i}") for i in range(len(calls))]
    assert [(job.state, job.attempt) for job in found] == [("failed", count) for count in calls.values()]


def test_the_bound_that_a_task_names_with_its_retries_is_its_own(fleet: Fleet) -> None:
    task = tasks_of(fleet).insists_for_long
    for most, calls in ((None, 6), (2, 2)):
        job = fleet.coordinator.submit("k", task.s(f"{most}"), **at_most(most))
        found = fleet.coordinator.wait(job.id, 60)
        assert (found.state, found.attempt, cause(found)) == ("failed", calls, "OSError")


def test_a_retry_with_other_arguments_is_made_with_them_and_bounded_as_any_other(fleet: Fleet) -> None:
    job = fleet.coordinator.submit("k", tasks_of(fleet).insists_otherwise.s("job"), max_attempts=2)
    found = fleet.coordinator.wait(job.id, 60)
    assert (found.state, found.attempt, cause(found)) == ("failed", 2, "Retry")
    assert found.args == ("other other job",)


def test_optimistic_conflicts_are_tried_again_and_not_counted(fleet: Fleet) -> None:
    tasks = tasks_of(fleet)
    for error, named in (("Conflict", []), ("Stale", [tasks.Stale]), ("ValueError", [Exception])):
        signature = tasks.until.s(error, 5, error)
        fleet.coordinator.submit(error, signature, job_id=error, max_attempts=1, retry_on=named)
    for error in ("Conflict", "Stale", "ValueError"):
        found = fleet.coordinator.wait(error, 60)
        assert (found.state, found.attempt, found.losses) == ("succeeded", 5, 0)
        first, *later = [event for event in found.course if event.what == "conflict"]
        assert first.due == first.at, "the first one waits for nothing"
        assert all(event.due >= event.at for event in later)


def test_optimistic_conflicts_have_a_bound_of_their_own(fleet: Fleet) -> None:
    job = fleet.coordinator.submit("k", tasks_of(fleet).until.s("job", 99, "Conflict"), max_attempts=5)
    found = fleet.coordinator.wait(job.id, 60)
    assert (found.state, found.attempt, cause(found)) == ("failed", 21, Conflict.__name__)
