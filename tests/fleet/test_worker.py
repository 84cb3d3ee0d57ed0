"""Celery's own features inside a job, and the pools a job may run in."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coordinator import Job
from tests.harness.fleet import Fleet
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until, within


def run(fleet: Fleet, signature: Any, key: str = "a", **options: Any) -> Job:
    return fleet.coordinator.wait(fleet.coordinator.submit(key, signature, **options).id, 30)


def test_retries_limits_links_and_results_behave_inside_a_job(fleet: Fleet) -> None:
    fleet.configure(retry_delay=0, sweep=0.1)
    fleet.worker(concurrency=2)
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
    job = fleet.coordinator.wait(failed.id, 20)
    assert job.state == "failed"
    assert job.error
    assert (job.error["type"], job.error["message"]) == ("ValueError", "boom")
    assert "in fail" in job.error["traceback"]
    with pytest.raises(ValueError, match="boom"):
        shop.app.AsyncResult(job.id).get(timeout=5)
    wait_until(lambda: fleet.stamps(job.id, "error"), 10, fleet.logs)

    linked = run(fleet, shop.work.s("linked").set(link=[shop.note.s(), shop.note.s()]))
    wait_until(lambda: len(fleet.stamps("linked", "noted")) == 2, 10, fleet.logs)
    assert shop.app.AsyncResult(linked.id).get(timeout=5) == "linked"
    assert fleet.stamps("boom", "noted") == []

    quiet = run(fleet, shop.add.s(1, 1).set(ignore_result=True))
    assert (quiet.result, shop.app.AsyncResult(quiet.id).state) == (None, "PENDING")


def test_a_retry_keeps_its_place_and_no_message_is_sent_for_it(fleet: Fleet) -> None:
    fleet.configure(retry_delay=0, sweep=0.1)
    fleet.worker(concurrency=2)
    shop = fleet.shop
    first, second = fleet.coordinator.submit_many(
        [("a", shop.again.s("first", 3), {"max_attempts": 3}), ("a", shop.work.s("second"))]
    )
    fleet.coordinator.wait(second.id, 20)
    assert fleet.coordinator.job(first.id).state == "succeeded"
    assert [stamp.name for stamp in fleet.stamps(what="begin")] == ["first"] * 3 + ["second"]
    assert "Task tests.harness.apps.shop.again[" + first.id + "] received" not in fleet.logs()


def test_limits_stop_an_attempt_and_the_lane_goes_on(fleet: Fleet) -> None:
    fleet.configure(sweep=0.1, retry_delay=0)
    worker = fleet.worker(concurrency=2)
    shop = fleet.shop
    hard = fleet.coordinator.submit("a", shop.work.s("hard", 60), time_limit=1, max_attempts=2)
    soft = fleet.coordinator.submit("a", shop.soft.s("soft", 60), soft_time_limit=0.5)
    after = fleet.coordinator.submit("a", shop.work.s("after"))
    job = fleet.coordinator.wait(hard.id, 30)
    assert (job.state, job.attempt, job.losses) == ("failed", 2, 0)
    assert job.error
    assert job.error["type"] == "TimedOut"
    wait_until(lambda: shop.app.AsyncResult(hard.id).state == "FAILURE", 10, fleet.logs)
    assert fleet.coordinator.wait(soft.id, 30).result == "soft limit seen"
    assert fleet.coordinator.wait(after.id, 30).state == "succeeded"
    assert fleet.stamps("hard", "end") == []
    assert worker.process.poll() is None


def test_a_running_job_that_is_cancelled_is_stopped_and_the_lane_goes_on(fleet: Fleet) -> None:
    fleet.configure(sweep=0.1)
    fleet.worker(concurrency=2)
    shop = fleet.shop
    job = fleet.coordinator.submit("a", shop.work.s("long", 60))
    after = fleet.coordinator.submit("a", shop.work.s("after"))
    wait_until(lambda: fleet.stamps("long"), 20)
    assert fleet.coordinator.cancel(job.id, why="enough", by="me") == "running"
    found = fleet.coordinator.wait(job.id, 10)
    assert (found.state, found.attempt) == ("cancelled", 1)
    assert found.error
    assert (found.error["message"], found.error["by"]) == ("enough", "me")
    assert fleet.coordinator.wait(after.id, 20).state == "succeeded"
    wait_until(lambda: shop.app.AsyncResult(job.id).state == "REVOKED", 20, fleet.logs)
    revoked = fleet.coordinator.submit("a", shop.work.s("revoked", 60))
    wait_until(lambda: fleet.stamps("revoked"), 20)
    shop.app.control.revoke(revoked.id, terminate=True)
    assert fleet.coordinator.wait(revoked.id, 20).state == "cancelled"
    assert fleet.stamps(what="end") == fleet.stamps("after", "end")


def test_a_slot_whose_process_was_killed_takes_the_next_job_at_once(fleet: Fleet) -> None:
    fleet.worker(concurrency=1)
    submit, work = fleet.coordinator.submit, fleet.shop.work
    for number in range(6):  # Celery sees some of the kills at once
        long = submit("a", work.s(f"long{number}", 60)).id
        wait_until(partial(fleet.stamps, f"long{number}"), 20)
        after = submit("b", work.s("after")).id
        fleet.coordinator.cancel(long)
        fleet.coordinator.wait(long, 20)
        with within(3):
            fleet.coordinator.wait(after, 20)


@pytest.mark.broker
@pytest.mark.parametrize("pool", ["threads", "solo", "gevent"])
def test_jobs_run_in_every_pool_and_one_that_cannot_be_stopped_keeps_its_lane(fleet: Fleet, pool: str) -> None:
    fleet.configure(lock_ttl=1, sweep=0.1)
    fleet.worker(pool=pool, concurrency=1 if pool == "solo" else 4)
    shop = fleet.shop
    jobs = fleet.coordinator.submit_many([("ledger", shop.work.s(f"{i:02}", 0.01)) for i in range(20)])
    fleet.coordinator.wait(jobs[-1].id, 30)
    assert [stamp.name for stamp in fleet.stamps(what="end")] == [f"{i:02}" for i in range(20)]
    who = run(fleet, shop.whoami.s())
    assert who.result["job"] == who.id

    over = fleet.coordinator.submit("a", shop.work.s("over", 3), time_limit=0.5)
    cancelled = fleet.coordinator.submit("b", shop.work.s("cancelled", 3))
    behind = [fleet.coordinator.submit(key, shop.work.s(f"behind {key}")) for key in "ab"]
    wait_until(lambda: fleet.stamps("cancelled"), 20)
    fleet.coordinator.cancel(cancelled.id)
    states = [fleet.coordinator.wait(one.id, 30) for one in (over, cancelled)]
    assert [(one.state, one.attempt, one.losses) for one in states] == [("failed", 1, 0), ("cancelled", 1, 0)]
    assert (states[0].error or {})["type"] == "TimedOut"
    for one in behind:
        fleet.coordinator.wait(one.id, 30)
    for key, name in (("a", "over"), ("b", "cancelled")):
        assert [end.at for end in fleet.stamps(name, "end")] < [start.at for start in fleet.stamps(f"behind {key}")]
        assert len(fleet.stamps(name, "begin")) == 1


def test_a_plain_client_without_an_app_submits_and_the_nodes_run_it(fleet: Fleet, coordinator: Any) -> None:
    fleet.worker()
    job = coordinator.submit("a", {"task": "tests.harness.apps.shop.add", "args": [1, 2]})
    assert coordinator.wait(job.id, 20).result == 3
    assert fleet.shop.app.AsyncResult(job.id).get(timeout=5) == 3


def test_ordinary_tasks_of_the_same_app_are_as_they_were(fleet: Fleet) -> None:
    fleet.worker()
    assert fleet.shop.add.delay(1, 2).get(timeout=10) == 3
    began = time.monotonic()
    assert fleet.shop.app.control.ping(timeout=1)
    assert time.monotonic() - began < 10


def test_a_plain_worker_warns_once_where_redis_may_lose_work_and_only_there(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    with Fleet(own_redis, own_redis.fresh_prefix(), tmp_path) as fleet:
        kept = fleet.worker("kept", 1)
        with own_redis.client() as client:
            client.config_set("appendonly", "no")
            client.config_set("maxmemory", "500mb")
            client.config_set("maxmemory-policy", "volatile-lru")
        warned = fleet.worker("warned", 1)
        wait_until(lambda: "may evict jobs and locks (volatile-lru)" in warned.log.read_text(), 10)
        assert warned.log.read_text().count("Redis keeps nothing on disk") == 1
        assert "Redis keeps nothing" not in kept.log.read_text()
        assert "may evict" not in kept.log.read_text()
