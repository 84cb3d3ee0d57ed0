"""Rollback on a real worker: when it runs, and what it is given."""

from typing import Any

from celery import chain, group

from tests.fleet.mishaps import MODULE, cause, double_faults, marks, tasks_of
from tests.harness.fleet import Fleet
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

NODE = Node("shop", 4, ("-I", MODULE), {"sweep": 0.05, "retry_delay": 0.01, "lock_ttl": 5, "slice": 1})


def test_a_rollback_is_given_the_jobs_id_its_arguments_its_error_and_its_last_result(fleet: Fleet) -> None:
    shop, tasks = fleet.shop, tasks_of(fleet)
    order = chain(shop.add.s(1, 2), tasks.refuse.s(word="no"))
    job = fleet.coordinator.submit("k", order, rollback=tasks.given.s("job"), max_attempts=2, retry_delay=0)
    found = fleet.coordinator.wait(job.id, 60)
    assert (found.state, found.rollback, found.attempt) == ("rolled_back", "done", 3)
    with fleet.server.client(3) as record:
        seen: Any = record.lrange(f"{fleet.prefix}.given", 0, -1)
    assert seen == [repr([job.id, "k", [3], {"word": "no"}, "no 3", 3])]
    assert (found.task, found.args, found.kwargs) == (tasks.refuse.name, (), {"word": "no"})


def test_a_rollback_that_is_a_chain_with_a_group_keeps_the_lane_until_all_of_it_has_ended(fleet: Fleet) -> None:
    shop = fleet.shop
    both = group(shop.work.si("left", 0.5), shop.work.si("right", 0.7))
    undo = chain(shop.undo.si("first"), both, shop.work.si("last"))
    job = fleet.coordinator.submit("k", shop.fail.s("job"), rollback=undo)
    after = fleet.coordinator.submit("k", shop.work.s("after"))
    assert fleet.coordinator.wait(after.id, 60).state == "succeeded"
    assert fleet.coordinator.job(job.id).state == "rolled_back"
    seen = marks(fleet)
    assert seen[:2] == ["job begin", "first undone"]
    assert sorted(seen[2:6]) == ["left begin", "left end", "right begin", "right end"]
    assert seen[6:] == ["last begin", "last end", "after begin", "after end"]


def test_a_job_lost_too_often_is_rolled_back_once(fleet: Fleet) -> None:
    shop, tasks = fleet.shop, tasks_of(fleet)
    killer = tasks.ends_badly.s("job", "kill")
    job = fleet.coordinator.submit("k", killer, max_losses=1, max_attempts=9, rollback=shop.undo.s("job"))
    after = fleet.coordinator.submit("k", shop.work.s("after"))
    assert fleet.coordinator.wait(after.id, 60).state == "succeeded"
    found = fleet.coordinator.job(job.id)
    assert (found.state, found.losses, found.attempt, found.rollback) == ("rolled_back", 2, 3, "done")
    assert marks(fleet) == ["job begin", "job begin", "job undone", "after begin", "after end"]


def test_a_started_job_that_is_cancelled_or_expires_is_stopped_then_rolled_back_and_its_state_stays(
    fleet: Fleet,
) -> None:
    shop, tasks, submit = fleet.shop, tasks_of(fleet), fleet.coordinator.submit
    well, badly = shop.undo.s, tasks.undo_badly.s
    submit("a", shop.work.s("cancelled", 60), job_id="cancelled", rollback=well("cancelled"))
    submit("b", shop.work.s("fault", 60), job_id="fault", rollback=badly("fault", "raise"))
    submit("c", shop.work.s("expired", 60), job_id="expired", rollback=well("expired"), max_lifetime=4)
    for key in "abc":
        submit(key, shop.work.s(f"next-{key}"), job_id=f"next-{key}")
    for name in ("cancelled", "fault"):
        wait_until(lambda name=name: fleet.stamps(name), what=fleet.logs)  # type: ignore[misc]
        assert fleet.coordinator.cancel(name, why="enough", by="me") == "running"
    for key in "abc":
        assert fleet.coordinator.wait(f"next-{key}", 60).state == "succeeded"
    found = {name: fleet.coordinator.job(name) for name in ("cancelled", "fault", "expired")}
    assert {name: (job.state, job.rollback) for name, job in found.items()} == {
        "cancelled": ("cancelled", "done"), "fault": ("cancelled", "failed"), "expired": ("expired", "done"),
    }  # fmt: skip
    assert (found["cancelled"].error or {})["message"] == "enough"
    for name, key in zip(found, "abc", strict=True):
        assert [stamp.what for stamp in fleet.stamps(name)] == ["begin", "undone"]
        assert fleet.stamps(name, "undone")[0].at < fleet.stamps(f"next-{key}", "begin")[0].at
    wait_until(lambda: double_faults(fleet, "fault"), what=fleet.logs)
    assert len(double_faults(fleet, "fault")) == 1
    counts = fleet.coordinator.counts()
    assert [counts[name] for name in ("cancelled", "expired", "double_fault", "faults")] == [2, 1, 0, 1]


def test_a_job_that_was_never_started_is_not_rolled_back_and_neither_is_one_that_is_released(fleet: Fleet) -> None:
    shop, submit = fleet.shop, fleet.coordinator.submit
    submit("k", shop.work.s("front", 60), job_id="front", rollback=shop.undo.s("front"))
    submit("k", shop.work.s("waiter"), job_id="waiter", rollback=shop.undo.s("waiter"))
    submit("k", shop.work.s("last"), job_id="last")
    wait_until(lambda: fleet.stamps("front"), what=fleet.logs)
    assert fleet.coordinator.cancel("waiter") == "cancelled"
    assert fleet.coordinator.release("k", why="stuck", by="me") == "front"
    assert fleet.coordinator.wait("last", 60).state == "succeeded"
    found = fleet.coordinator.job("front")
    assert (found.state, found.rollback, cause(found)) == ("cancelled", None, "Released")
    assert marks(fleet) == ["front begin", "last begin", "last end"]


def test_the_rollback_of_an_order_is_given_the_step_that_failed_and_the_last_result(fleet: Fleet) -> None:
    shop = fleet.shop
    job = fleet.coordinator.submit(
        "k", chain(shop.add.s(1, 2), shop.add.s("x"), shop.add.s(1)), rollback=shop.undo.s("u")
    )
    found = fleet.coordinator.wait(job.id, 60)
    assert (found.state, found.step, found.error["type"]) == ("rolled_back", 1, "TypeError")
    assert marks(fleet) == ["u undone"]
