"""Attempts on real workers of which a test needs its own: as many as it says."""

from tests.fleet.mishaps import gaps, marks, start, tasks_of
from tests.harness.fleet import Fleet
from tests.harness.waiting import wait_until


def test_while_a_job_waits_for_its_retry_its_lane_stands_still_and_no_worker_is_held(fleet: Fleet) -> None:
    fleet.configure(sweep=0.05, retry_delay=0.01)
    start(fleet, concurrency=1)
    submit, work = fleet.coordinator.submit, fleet.shop.work
    first = submit("k", tasks_of(fleet).until.s("first", 2), max_attempts=2, retry_delay=1.5)
    behind = submit("k", work.s("behind"))
    wait_until(lambda: fleet.coordinator.job(first.id).state == "retrying", 20, fleet.logs)
    others = [submit("other", work.s("other")) for _ in range(3)]
    for one in others:
        assert fleet.coordinator.wait(one.id, 20).state == "succeeded"
    assert fleet.coordinator.job(first.id).state == "retrying"
    assert fleet.coordinator.lane("k").jobs == (first.id, behind.id)
    assert fleet.coordinator.wait(behind.id, 20).state == "succeeded"
    assert marks(fleet) == [
        "first begin", *["other begin", "other end"] * 3, "first begin", "first end", "behind begin", "behind end",
    ]  # fmt: skip
    begins = fleet.stamps("first", "begin")
    assert 1.5 <= gaps(begins)[0] < 6


def test_five_hundred_optimistic_writers_on_each_of_two_nodes_add_up(fleet: Fleet) -> None:
    fleet.configure(sweep=0.05)
    start(fleet, "one", 2)
    start(fleet, "two", 2)
    task = tasks_of(fleet).count_up.s()
    jobs = fleet.coordinator.submit_many([(f"writer/{i % 8}", task) for i in range(1000)])
    for job in jobs:
        assert fleet.coordinator.wait(job.id, 60).state == "succeeded"
    with fleet.server.client(3) as record:
        assert record.get(f"{fleet.prefix}.record") == "1000"
        assert int(record.get(f"{fleet.prefix}.conflicts") or 0) > 0, "nobody met anybody"
