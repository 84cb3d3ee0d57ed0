"""Tasks that end in the worst ways, and processes killed at each point of an attempt: right state, count and order."""

from contextlib import suppress
from typing import Any

import pytest

from coordinator import JobFailed, Submission
from tests.fleet.mishaps import cause, marks, start, tasks_of
from tests.harness.fleet import Fleet
from tests.harness.waiting import wait_until

QUICK: dict[str, Any] = {"sweep": 0.05, "retry_delay": 0.01, "lock_ttl": 2, "node_ttl": 1, "heartbeat": 0.2}

BODY = ["job begin", "job end"]


def test_whatever_a_task_does_to_its_process_it_ends_as_failed_and_the_lane_goes_on(fleet: Fleet) -> None:
    fleet.configure(**QUICK)
    start(fleet)
    shop, tasks, submit = fleet.shop, tasks_of(fleet), fleet.coordinator.submit
    causes = {
        "memory": "MemoryError", "exit": "SystemExit", "interrupt": "KeyboardInterrupt", "unspeakable": "Unspeakable",
        "cancelled": "CancelledError", "generator": "GeneratorExit", "abort": "Abort", "kill": "Lost",
        "unkeepable": "NoRetry",
    }  # fmt: skip
    submissions: dict[str, Submission] = {}
    for how in causes:
        task = tasks.unkeepable.s(how) if how == "unkeepable" else tasks.ends_badly.s(how, how)
        signature = task.set(link_error=shop.note_error.s())
        submissions[how] = submit(how, signature, job_id=f"bad-{how}", max_losses=1)
        submit(how, shop.work.s(f"next-{how}"), job_id=f"next-{how}")
    for how, name in causes.items():
        assert fleet.coordinator.wait(f"next-{how}", 60).state == "succeeded"
        job = fleet.coordinator.job(f"bad-{how}")
        calls = 2 if name == "Lost" else 1
        assert (job.state, cause(job), job.attempt, job.losses) == ("failed", name, calls, 2 * (calls - 1)), how
        assert marks(fleet, how, f"next-{how}") == [f"{how} begin"] * calls + [f"next-{how} begin", f"next-{how} end"]
        wait_until(lambda how=how: shop.app.AsyncResult(f"bad-{how}").state == "FAILURE", 20, fleet.logs)  # type: ignore[misc]
        wait_until(lambda how=how: fleet.stamps(f"bad-{how}", "error"), 20, fleet.logs)  # type: ignore[misc]
    counts = fleet.coordinator.counts()
    assert (counts["failed"], counts["losses"], counts["succeeded"]) == (9, 2, 9)
    for how in ("exit", "interrupt", "generator"):  # none of them is raised where it would end the caller
        for get in (shop.app.AsyncResult(f"bad-{how}").get, submissions[how].get):
            with pytest.raises(JobFailed, match=f"bad-{how} is failed: {causes[how]}"):
                get(timeout=10)


def test_an_unspeakable_rollback_is_a_double_fault_and_its_runner_goes_on(fleet: Fleet) -> None:
    fleet.configure(**QUICK)
    start(fleet, concurrency=1)
    tasks, shop = tasks_of(fleet), fleet.shop
    undo = tasks.ends_badly.s("undo", "unspeakable")
    job = fleet.coordinator.submit("k", tasks.ends_badly.s("job", "unspeakable"), rollback=undo)
    after = fleet.coordinator.submit("k", shop.work.s("after"))
    found = fleet.coordinator.wait(after.id, 30)
    assert (found.state, found.attempt, found.losses) == ("succeeded", 1, 0)
    assert fleet.coordinator.job(job.id).state == "double_fault"


@pytest.mark.parametrize(
    ("point", "calls", "losses"),
    [("prerun", BODY, 1), ("postrun", BODY * 2, 1), ("told", BODY, 0)],
    ids=["before-start", "after-the-body-before-the-outcome", "after-the-outcome-before-the-notices"],
)
def test_a_process_killed_at_any_point_costs_at_most_one_more_run(
    fleet: Fleet, point: str, calls: list[str], losses: int
) -> None:
    fleet.configure(**QUICK)
    start(fleet, concurrency=1, kill=point)
    shop, store = fleet.shop, fleet.coordinator.store
    job = fleet.coordinator.submit("k", shop.work.s("job").set(link=shop.note.s()))
    behind = [fleet.coordinator.submit("k", shop.work.s(f"behind{i}")).id for i in range(2)]
    assert fleet.coordinator.wait(behind[-1], 30).state == "succeeded"
    found = fleet.coordinator.job(job.id)
    assert (found.state, found.attempt, found.losses) == ("succeeded", losses + 1, losses)
    after = [f"behind{i} {what}" for i in range(2) for what in ("begin", "end")]
    done = [mark for mark in marks(fleet) if mark != "job noted"]
    if point == "told":  # a thread sends the notices, and the process may have begun the next job meanwhile
        done = list(dict.fromkeys(done))
    assert done == calls + after
    owed: Any = store.key("unsent", "shop")
    with suppress(AssertionError):  # by the process that ran the job, if it lives: it sends within milliseconds
        wait_until(lambda: not store._client.exists(owed), 1)
    store._client.zadd(owed, {job.id: 1}, xx=True)
    wait_until(lambda: fleet.stamps("job", "noted"), 10, fleet.logs)
    wait_until(lambda: not store._client.exists(owed), 10)
    assert shop.app.AsyncResult(job.id).get(timeout=5) == "job"
    assert len(fleet.stamps("job", "noted")) == 1
    counts = fleet.coordinator.counts()
    assert (counts["created"], counts["succeeded"]) == (3, 3)
    assert counts["losses"] in ((0, 1) if point == "told" else (losses,))


def test_a_node_killed_while_a_job_waits_for_its_retry_costs_no_attempt_and_no_place(fleet: Fleet) -> None:
    fleet.configure(**QUICK)
    first = start(fleet, "first")
    shop, tasks = fleet.shop, tasks_of(fleet)
    job = fleet.coordinator.submit("k", tasks.until.s("job", 2), max_attempts=2, retry_delay=2)
    behind = fleet.coordinator.submit("k", shop.work.s("behind"))
    wait_until(lambda: fleet.coordinator.job(job.id).state == "retrying", 20, fleet.logs)
    first.end()
    start(fleet, "second")
    assert fleet.coordinator.wait(behind.id, 30).state == "succeeded"
    found = fleet.coordinator.job(job.id)
    assert (found.state, found.attempt, found.losses, found.node) == ("succeeded", 2, 0, "second@test")
    assert marks(fleet) == ["job begin", *BODY, "behind begin", "behind end"]
    begins = fleet.stamps("job", "begin")
    assert begins[1].at - begins[0].at > 1.9e6


def test_a_node_killed_in_a_rollback_makes_it_a_double_fault_said_once(fleet: Fleet) -> None:
    fleet.configure(**QUICK)
    first = start(fleet, "first")
    shop, tasks = fleet.shop, tasks_of(fleet)
    job = fleet.coordinator.submit("k", shop.fail.s("job"), rollback=tasks.undo_badly.s("job", "hang"))
    behind = fleet.coordinator.submit("k", shop.work.s("behind"))
    wait_until(lambda: fleet.stamps("job", "undone"), 20, fleet.logs)
    start(fleet, "second")
    first.end()
    assert fleet.coordinator.wait(behind.id, 30).state == "succeeded"
    found = fleet.coordinator.job(job.id)
    assert (found.state, found.rollback, found.attempt) == ("double_fault", "failed", 2)
    assert marks(fleet) == ["job begin", "job undone", "behind begin", "behind end"]
    wait_until(lambda: "double fault" in fleet.logs(), 10)
    assert fleet.logs().count("double fault") == 1
