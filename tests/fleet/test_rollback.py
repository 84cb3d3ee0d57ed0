"""Rollback on real workers: when it runs, what it is given, and what follows when it fails as well."""

from typing import Any

from tests.fleet.mishaps import cause, double_faults, marks, start, tasks_of
from tests.harness.fleet import Fleet
from tests.harness.waiting import wait_until

QUICK: dict[str, Any] = {"sweep": 0.05, "retry_delay": 0.01, "lock_ttl": 2, "slice": 1}


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


def test_a_thousand_double_faults_and_then_a_good_job(fleet: Fleet) -> None:
    fleet.configure(sweep=0.05)
    start(fleet)
    shop, tasks = fleet.shop, tasks_of(fleet)
    bad = ("k", shop.fail.s("bad"), {"rollback": tasks.undo_badly.s("bad", "raise")})
    fleet.coordinator.submit_many([bad] * 1000)
    good = fleet.coordinator.submit("k", shop.work.s("good"))
    assert fleet.coordinator.wait(good.id, 100).state == "succeeded"
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
