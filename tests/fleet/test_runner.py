"""Jobs without a node, and a flood of them on one with a single slot."""

from tests.harness.fleet import Fleet, kill_all
from tests.harness.waiting import wait_until


def test_once_the_whole_fleet_was_killed_jobs_are_accepted_and_run_in_order_once_a_node_starts(fleet: Fleet) -> None:
    fleet.configure(node_ttl=4, heartbeat=0.5)
    coordinator, work = fleet.coordinator, fleet.shop.work
    first = coordinator.submit("k0", work.s("first"))
    assert (first.accepted, coordinator.why(first.id).codes) == (True, ["waiting.fleet"])
    worker = fleet.worker("one")
    assert coordinator.wait(first.id, 60).state == "succeeded"
    kill_all(worker)
    wait_until(lambda: coordinator.nodes() == [])
    jobs = [coordinator.submit(f"k{i % 3}", work.s(f"{i}")).id for i in range(9)]
    assert {coordinator.job(job_id).state for job_id in jobs} == {"ready", "waiting"}
    assert coordinator.why(jobs[0]).codes == ["waiting.fleet"]
    other = fleet.worker("two")
    for job_id in jobs:
        assert coordinator.wait(job_id, 60).node == other.name
    begun = [int(stamp.name) for stamp in fleet.stamps(what="begin")[1:]]
    for lane in range(3):
        assert [number for number in begun if number % 3 == lane] == [lane, lane + 3, lane + 6]


def test_a_flood_of_lanes_delays_an_ordinary_task_by_two_slices_at_most(fleet: Fleet) -> None:
    fleet.configure(slice=1)
    fleet.worker(concurrency=1)
    work = fleet.shop.work
    found = fleet.coordinator.submit_many([(f"k{i}", work.s(f"{i}", 0.02)) for i in range(400)])
    wait_until(lambda: len(fleet.stamps()) > 20)
    waits = []
    for ordinary in ("x", "y", "z"):
        before = len(fleet.stamps(what="end"))
        work.delay(ordinary).get(timeout=60)
        (begun,) = fleet.stamps(ordinary, "begin")
        waits.append(len([stamp for stamp in fleet.stamps(what="end") if stamp.at < begun.at]) - before)
    assert fleet.coordinator.job(found[-1].id).state == "ready", "the flood lasted as long"
    assert max(waits) <= 2 * 50 + 10, "jobs of 20 ms that two slices of 1 s hold"
    for one in found:
        fleet.coordinator.cancel(one.id)
