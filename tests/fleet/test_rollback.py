"""Rollback on real workers: when it runs, what it is given, and what follows when it fails as well."""

from typing import Any

from celery import chain, group

from tests.fleet.mishaps import cause, marks, start, tasks_of
from tests.harness.fleet import Fleet
from tests.harness.waiting import wait_until

QUICK: dict[str, Any] = {"sweep": 0.05, "retry_delay": 0.01, "lock_ttl": 2, "slice": 1}


def double_faults(fleet: Fleet, job_id: str) -> list[str]:
    return [line for line in fleet.logs().splitlines() if "double fault" in line and job_id in line]


def test_a_rollback_that_fails_is_a_double_fault_said_once_and_the_next_job_runs_at_once(fleet: Fleet) -> None:
    fleet.configure(**QUICK | {"lock_ttl": 15})
    start(fleet, concurrency=3)
    shop, tasks, submit = fleet.shop, tasks_of(fleet), fleet.coordinator.submit
    causes = {"raise": "LookupError: nothing to undo", "hang": "TimedOut", "kill": "is gone"}
    for how in causes:
        undo = tasks.undo_badly.s(how, how).set(time_limit=0.5)
        submit(f"key/{how}", shop.fail.s(how), job_id=f"bad-{how}", rollback=undo)
        submit(f"key/{how}", shop.work.s(f"next-{how}"), job_id=f"next-{how}")
    for how, fault in causes.items():
        assert fleet.coordinator.wait(f"next-{how}", 30).state == "succeeded"
        job = fleet.coordinator.job(f"bad-{how}")
        assert (job.state, job.rollback, cause(job), job.attempt) == ("double_fault", "failed", "ValueError", 2)
        wait_until(lambda how=how: double_faults(fleet, f"bad-{how}"), 10, fleet.logs)  # type: ignore[misc]
        assert len(lines := double_faults(fleet, f"bad-{how}")) == 1
        assert all(part in lines[0] for part in ("ERROR", f"key/{how}", f"ValueError: {how}", fault)), lines
        assert [stamp.what for stamp in fleet.stamps(how)] == ["begin", "undone"]
        (undone,), (begun,) = fleet.stamps(how, "undone"), fleet.stamps(f"next-{how}", "begin")
        assert (begun.at - undone.at) / 1e6 < 5
    counts = fleet.coordinator.counts()
    assert (counts["double_fault"], counts["faults"], counts["created"]) == (3, 3, 6)


def test_a_rollback_is_given_the_jobs_id_its_arguments_its_error_and_its_last_result(fleet: Fleet) -> None:
    fleet.configure(**QUICK)
    start(fleet)
    shop, tasks = fleet.shop, tasks_of(fleet)
    order = chain(shop.add.s(1, 2), tasks.refuse.s(word="no"))
    job = fleet.coordinator.submit("k", order, rollback=tasks.given.s("job"), max_attempts=2, retry_delay=0)
    found = fleet.coordinator.wait(job.job_id, 30)
    assert (found.state, found.rollback, found.attempt) == ("rolled_back", "done", 4)
    with fleet.server.client(3) as record:
        seen: Any = record.lrange(f"{fleet.prefix}.given", 0, -1)
    assert seen == [repr([job.job_id, "k", [3], {"word": "no"}, "no 3", 3])]
    assert (found.task, found.args, found.kwargs) == (tasks.refuse.name, (), {"word": "no"})


def test_a_rollback_that_is_a_chain_with_a_group_keeps_the_lane_until_all_of_it_has_ended(fleet: Fleet) -> None:
    fleet.configure(**QUICK)
    start(fleet, concurrency=3)
    shop = fleet.shop
    both = group(shop.work.si("left", 0.5), shop.work.si("right", 0.7))
    undo = chain(shop.undo.si("first"), both, shop.work.si("last"))
    job = fleet.coordinator.submit("k", shop.fail.s("job"), rollback=undo)
    after = fleet.coordinator.submit("k", shop.work.s("after"))
    assert fleet.coordinator.wait(after.job_id, 30).state == "succeeded"
    assert fleet.coordinator.job(job.job_id).state == "rolled_back"
    seen = marks(fleet)
    assert seen[:2] == ["job begin", "first undone"]
    assert sorted(seen[2:6]) == ["left begin", "left end", "right begin", "right end"]
    assert seen[6:] == ["last begin", "last end", "after begin", "after end"]


def test_a_job_lost_too_often_is_rolled_back_once(fleet: Fleet) -> None:
    fleet.configure(**QUICK)
    start(fleet)
    shop, tasks = fleet.shop, tasks_of(fleet)
    killer = tasks.ends_badly.s("job", "kill")
    job = fleet.coordinator.submit("k", killer, max_losses=1, max_attempts=9, rollback=shop.undo.s("job"))
    after = fleet.coordinator.submit("k", shop.work.s("after"))
    assert fleet.coordinator.wait(after.job_id, 40).state == "succeeded"
    found = fleet.coordinator.job(job.job_id)
    assert (found.state, found.losses, found.attempt, found.rollback) == ("rolled_back", 2, 3, "done")
    assert marks(fleet) == ["job begin", "job begin", "job undone", "after begin", "after end"]


def test_a_started_job_that_is_cancelled_or_expires_is_stopped_then_rolled_back_and_its_state_stays(
    fleet: Fleet,
) -> None:
    fleet.configure(**QUICK)
    start(fleet, concurrency=4)
    shop, tasks, submit = fleet.shop, tasks_of(fleet), fleet.coordinator.submit
    well, badly = shop.undo.s, tasks.undo_badly.s
    submit("a", shop.work.s("cancelled", 60), job_id="cancelled", rollback=well("cancelled"))
    submit("b", shop.work.s("fault", 60), job_id="fault", rollback=badly("fault", "raise"))
    submit("c", shop.work.s("expired", 60), job_id="expired", rollback=well("expired"), max_lifetime=0.5)
    for key in "abc":
        submit(key, shop.work.s(f"next-{key}"), job_id=f"next-{key}")
    for name in ("cancelled", "fault"):
        wait_until(lambda name=name: fleet.stamps(name), 20, fleet.logs)  # type: ignore[misc]
        assert fleet.coordinator.cancel(name, why="enough", by="me") == "running"
    for key in "abc":
        assert fleet.coordinator.wait(f"next-{key}", 30).state == "succeeded"
    found = {name: fleet.coordinator.job(name) for name in ("cancelled", "fault", "expired")}
    assert {name: (job.state, job.rollback) for name, job in found.items()} == {
        "cancelled": ("cancelled", "done"), "fault": ("cancelled", "failed"), "expired": ("expired", "done"),
    }  # fmt: skip
    assert (found["cancelled"].error or {})["message"] == "enough"
    for name, key in zip(found, "abc", strict=True):
        assert [stamp.what for stamp in fleet.stamps(name)] == ["begin", "undone"]
        assert fleet.stamps(name, "undone")[0].at < fleet.stamps(f"next-{key}", "begin")[0].at
    assert len(double_faults(fleet, "fault")) == 1
    counts = fleet.coordinator.counts()
    assert [counts[name] for name in ("cancelled", "expired", "double_fault", "faults")] == [2, 1, 0, 1]


def test_a_job_that_was_never_started_is_not_rolled_back_and_neither_is_one_that_is_released(fleet: Fleet) -> None:
    fleet.configure(**QUICK)
    start(fleet)
    shop, submit = fleet.shop, fleet.coordinator.submit
    submit("k", shop.work.s("front", 60), job_id="front", rollback=shop.undo.s("front"))
    submit("k", shop.work.s("waiter"), job_id="waiter", rollback=shop.undo.s("waiter"))
    submit("k", shop.work.s("last"), job_id="last")
    wait_until(lambda: fleet.stamps("front"), 20, fleet.logs)
    assert fleet.coordinator.cancel("waiter") == "cancelled"
    assert fleet.coordinator.release("k", why="stuck", by="me") == "front"
    assert fleet.coordinator.wait("last", 20).state == "succeeded"
    found = fleet.coordinator.job("front")
    assert (found.state, found.rollback, cause(found)) == ("cancelled", None, "Released")
    assert marks(fleet) == ["front begin", "last begin", "last end"]


def test_a_thousand_double_faults_and_then_a_good_job(fleet: Fleet) -> None:
    fleet.configure(sweep=0.05)
    start(fleet)
    shop, tasks = fleet.shop, tasks_of(fleet)
    bad = ("k", shop.fail.s("bad"), {"rollback": tasks.undo_badly.s("bad", "raise")})
    fleet.coordinator.submit_many([bad] * 1000)
    good = fleet.coordinator.submit("k", shop.work.s("good"))
    assert fleet.coordinator.wait(good.job_id, 100).state == "succeeded"
    assert marks(fleet) == ["bad begin", "bad undone"] * 1000 + ["good begin", "good end"]
    counts = fleet.coordinator.counts()
    assert (counts["double_fault"], counts["faults"], counts["succeeded"], counts["waiting"]) == (1000, 1000, 1, 0)


def test_where_a_rollback_cannot_be_stopped_one_that_overruns_is_a_double_fault_all_the_same(fleet: Fleet) -> None:
    fleet.configure(**QUICK)
    start(fleet, pool="threads")
    shop, submit = fleet.shop, fleet.coordinator.submit
    submit("k", shop.fail.s("job"), job_id="job", rollback=shop.work.s("undo", 0.6).set(time_limit=0.2))
    submit("k", shop.work.s("next"), job_id="next")
    assert fleet.coordinator.wait("next", 20).state == "succeeded"
    job = fleet.coordinator.job("job")
    assert (job.state, job.rollback, (job.fault or {})["type"]) == ("double_fault", "failed", "TimedOut")
    assert marks(fleet) == ["job begin", "undo begin", "undo end", "next begin", "next end"]
    assert len(double_faults(fleet, "job")) == 1
