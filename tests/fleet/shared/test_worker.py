"""Celery's own features inside a job, what watches it, and maintenance that stands still."""

import time
from functools import partial
from timeit import timeit
from typing import Any

import pytest

from coordinator import Job
from tests.fleet.test_maintenance import lives_for
from tests.harness.events import Ear
from tests.harness.fleet import ANSWERED, Fleet
from tests.harness.standing import Node
from tests.harness.stopping import stop
from tests.harness.waiting import wait_until, within

SHORT = {"retry_delay": 0, "sweep": 0.1, "heartbeat": 0.2, "lock_ttl": 5, "node_ttl": 4}
NODE = Node("shop", 2, settings=SHORT)


def run(fleet: Fleet, signature: Any, key: str = "a", **options: Any) -> Job:
    return fleet.coordinator.wait(fleet.coordinator.submit(key, signature, **options).id, 60)


def test_retries_limits_links_and_results_behave_inside_a_job(fleet: Fleet) -> None:
    shop, submit = fleet.shop, fleet.coordinator.submit

    again = run(fleet, shop.again.s("again", 3), max_attempts=5)
    assert (again.state, again.attempt, again.result) == ("succeeded", 3, 2)
    once = run(fleet, shop.again.s("once", 3), max_attempts=1)
    assert (once.state, once.attempt) == ("failed", 1)
    own = run(fleet, shop.again.s("own", 9))
    assert (own.state, own.attempt) == ("failed", 6), "where submit names no bound, its own max_retries, 5, is one"
    auto = run(fleet, shop.auto.s("auto", 2), max_attempts=2)
    assert (auto.state, auto.attempt, auto.result) == ("succeeded", 2, 2)

    who = run(fleet, shop.whoami.s(), key="who")
    assert who.result["id"] == who.result["job"] == who.id
    assert (who.result["key"], who.result["retries"], who.progress) == ("who", 0, (1, 2))

    failed = submit("a", shop.fail.s("boom").set(link_error=shop.note_error.s(), link=shop.note.s()))
    job = fleet.coordinator.wait(failed.id, 60)
    assert job.state == "failed"
    assert job.error
    assert (job.error["type"], job.error["message"]) == ("ValueError", "boom")
    assert "in fail" in job.error["traceback"]
    with pytest.raises(ValueError, match="boom"):
        shop.app.AsyncResult(job.id).get(timeout=60)
    wait_until(lambda: fleet.stamps(job.id, "error"), what=fleet.logs)

    linked = run(fleet, shop.work.s("linked").set(link=[shop.note.s(), shop.note.s()]))
    wait_until(lambda: len(fleet.stamps("linked", "noted")) == 2, what=fleet.logs)
    assert shop.app.AsyncResult(linked.id).get(timeout=60) == "linked"
    assert fleet.stamps("boom", "noted") == []

    quiet = run(fleet, shop.add.s(1, 1).set(ignore_result=True))
    assert (quiet.result, shop.app.AsyncResult(quiet.id).state) == (None, "PENDING")


def test_a_retry_keeps_its_place_and_no_message_is_sent_for_it(fleet: Fleet) -> None:
    shop = fleet.shop
    first, second = fleet.coordinator.submit_many(
        [("a", shop.again.s("first", 3), {"max_attempts": 3}), ("a", shop.work.s("second"))]
    )
    fleet.coordinator.wait(second.id, 60)
    assert fleet.coordinator.job(first.id).state == "succeeded"
    assert [stamp.name for stamp in fleet.stamps(what="begin")] == ["first"] * 3 + ["second"]
    assert "Task tests.harness.apps.shop.again[" + first.id + "] received" not in fleet.logs()


def test_limits_stop_an_attempt_and_the_lane_goes_on(fleet: Fleet) -> None:
    (worker,) = fleet.workers
    shop = fleet.shop
    hard = fleet.coordinator.submit("a", shop.work.s("hard", 60), time_limit=1, max_attempts=2)
    soft = fleet.coordinator.submit("a", shop.soft.s("soft", 60), soft_time_limit=2)
    after = fleet.coordinator.submit("a", shop.work.s("after"))
    job = fleet.coordinator.wait(hard.id, 60)
    assert (job.state, job.attempt, job.losses) == ("failed", 2, 0)
    assert job.error
    assert job.error["type"] == "TimedOut"
    wait_until(lambda: shop.app.AsyncResult(hard.id).state == "FAILURE", what=fleet.logs)
    assert fleet.coordinator.wait(soft.id, 60).result == "soft limit seen"
    assert fleet.coordinator.wait(after.id, 60).state == "succeeded"
    assert fleet.stamps("hard", "end") == []
    assert worker.process.poll() is None


def test_a_running_job_that_is_cancelled_is_stopped_and_the_lane_goes_on(fleet: Fleet) -> None:
    shop = fleet.shop
    job = fleet.coordinator.submit("a", shop.work.s("long", 60))
    after = fleet.coordinator.submit("a", shop.work.s("after"))
    wait_until(lambda: fleet.stamps("long"))
    assert fleet.coordinator.cancel(job.id, why="enough", by="me") == "running"
    found = fleet.coordinator.wait(job.id, 60)
    assert (found.state, found.attempt) == ("cancelled", 1)
    assert found.error
    assert (found.error["message"], found.error["by"]) == ("enough", "me")
    assert fleet.coordinator.wait(after.id, 60).state == "succeeded"
    wait_until(lambda: shop.app.AsyncResult(job.id).state == "REVOKED", what=fleet.logs)
    revoked = fleet.coordinator.submit("a", shop.work.s("revoked", 60))
    wait_until(lambda: fleet.stamps("revoked"))
    shop.app.control.revoke(revoked.id, terminate=True)
    assert fleet.coordinator.wait(revoked.id, 60).state == "cancelled"
    assert fleet.stamps(what="end") == fleet.stamps("after", "end")


def test_a_slot_whose_process_was_killed_takes_the_next_job_at_once(fleet: Fleet) -> None:
    submit, work = fleet.coordinator.submit, fleet.shop.work
    submit("busy", fleet.shop.held.s("busy"))
    fleet.begun("busy")  # the other slot
    for number in range(6):  # Celery sees some of the kills at once
        long = submit("a", work.s(f"long{number}", 60)).id
        wait_until(partial(fleet.stamps, f"long{number}"))
        after = submit("b", work.s("after")).id
        fleet.coordinator.cancel(long)
        fleet.coordinator.wait(long, 60)
        with within(15):
            fleet.coordinator.wait(after, 60)
    fleet.go("busy")


def test_ordinary_tasks_of_the_same_app_are_as_they_were(fleet: Fleet) -> None:
    assert fleet.shop.add.delay(1, 2).get(timeout=60) == 3
    assert fleet.shop.app.control.ping(timeout=20, limit=1)


def run_one(fleet: Fleet) -> str:
    job_id = fleet.coordinator.submit("a", fleet.shop.add.s(1, 2)).id
    assert fleet.coordinator.wait(job_id, 60).state == "succeeded"
    return job_id


def test_a_worker_sends_the_events_of_jobs_while_somebody_asked_for_them(fleet: Fleet) -> None:
    control = fleet.shop.app.control
    with Ear(fleet.shop.app) as ear:
        unasked = run_one(fleet)
        time.sleep(1.0)
        assert ear.heard == {}
        assert control.enable_events(**ANSWERED)
        time.sleep(3.0)
        asked = run_one(fleet)
        wait_until(lambda: len(ear.of(asked)) == 3, what=lambda: str(ear.heard))
        assert ear.of(asked) == ["task-received", "task-started", "task-succeeded"]
        assert control.disable_events(**ANSWERED)
        time.sleep(3.0)
        again = run_one(fleet)
        time.sleep(1.0)
    assert set(ear.heard) == {asked}, f"not {unasked}, not {again}"


def test_lone_jobs_are_not_held_up_by_their_events(fleet: Fleet) -> None:
    run_one(fleet)

    def seconds() -> float:
        """Of one job; that most of them meet a busy machine counts for nothing."""
        return sorted(timeit(lambda: run_one(fleet), number=1) for _ in range(20))[5]

    silent = seconds()
    assert fleet.shop.app.control.enable_events(**ANSWERED)
    time.sleep(3.0)
    assert seconds() < 2 * silent + 0.1, "each would wait 0.2 s for the pause between two messages"
    assert fleet.shop.app.control.disable_events(**ANSWERED)


def test_maintenance_that_stands_still_costs_latency_only(fleet: Fleet) -> None:
    (worker,) = fleet.workers
    stop(worker.maintenance())
    jobs = [fleet.coordinator.submit(f"k{number}", fleet.shop.work.s(f"{number}").set(countdown=0.5))
            for number in range(20)]  # fmt: skip
    lives_for(fleet, 5, "one@test")
    worker.maintenance().resume()
    for job in jobs:
        assert fleet.coordinator.wait(job.id, 60).losses == 0
