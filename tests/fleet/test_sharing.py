"""A node's slots: they follow its pool, and jobs and ordinary tasks share them."""

from itertools import accumulate
from typing import Any

from tests.harness.fleet import Fleet
from tests.harness.waiting import wait_until


def capacity(fleet: Fleet) -> int:
    (node,) = fleet.coordinator.nodes()
    return node.capacity


def at_once(fleet: Fleet) -> int:
    """The most bodies that ever ran beside each other."""
    return max(accumulate({"begin": 1, "end": -1}[stamp.what] for stamp in fleet.stamps()))


def test_capacity_follows_a_pool_that_grows_and_shrinks(fleet: Fleet) -> None:
    worker = fleet.worker("one", 1, app="depot")
    depot, coordinator = fleet.depot, fleet.depot.coordinator
    control = depot.app.control
    jobs = [coordinator.submit(f"k{i}", depot.held.s(f"job{i}")).id for i in range(4)]
    fleet.begun("job0")
    control.pool_grow(2, destination=[worker.name])
    wait_until(lambda: capacity(fleet) == 3, 20, fleet.logs)
    fleet.begun("job0", "job1", "job2")
    assert fleet.stamps("job3") == []
    for i, job_id in enumerate(jobs):
        fleet.go(f"job{i}")
        assert coordinator.wait(job_id, 20).state == "succeeded"
    wait_until(lambda: (control.inspect().active() or {}).get(worker.name) == [], 20, fleet.logs)
    control.pool_shrink(2, destination=[worker.name])
    wait_until(lambda: capacity(fleet) == 1, 20, fleet.logs)
    assert at_once(fleet) == 3


def test_a_pool_that_grows_by_itself_grows_for_jobs(fleet: Fleet) -> None:
    fleet.worker("one", 1, "--autoscale=3,1", app="depot")
    depot, coordinator = fleet.depot, fleet.depot.coordinator
    jobs = [coordinator.submit(f"k{i}", depot.held.s(f"job{i}")).id for i in range(4)]
    wait_until(lambda: len(fleet.stamps(what="begin")) == 3, 20, fleet.logs)
    for i, job_id in enumerate(jobs):
        fleet.go(f"job{i}")
        assert coordinator.wait(job_id, 20).state == "succeeded"
    assert at_once(fleet) == 3


def test_ordinary_tasks_go_to_free_slots_only_and_share_them_with_jobs(fleet: Fleet) -> None:
    fleet.configure(sweep=0.1)
    fleet.worker("one", 2, app="depot")
    depot, coordinator = fleet.depot, fleet.depot.coordinator
    names = [f"task{i}" for i in range(5)]
    for name in names:
        depot.held.delay(name)
    fleet.begun("task0", "task1")
    wait_until(lambda: coordinator.nodes()[0].ordinary == 2, 20, fleet.logs)
    with fleet.server.client(1) as broker:
        assert broker.llen(f"{fleet.prefix}.depot") == 3
    job_id = coordinator.submit("a", depot.held.s("job")).id
    (node,) = coordinator.nodes()
    assert (node.ordinary, node.running, node.rung) == (2, 0, 0)
    assert coordinator.why(job_id).causes[-1].text.endswith("whose slots are taken: one@test (2 of 2)")
    for name in [*names, "job"]:
        fleet.go(name)
    assert coordinator.wait(job_id, 20).state == "succeeded"
    wait_until(lambda: len(fleet.stamps(what="end")) == 6, 20, fleet.logs)
    assert at_once(fleet) == 2
    wait_until(lambda: coordinator.nodes()[0].ordinary == 0, 20)


def test_a_flood_of_jobs_keeps_an_ordinary_task_waiting_for_two_slices_at_most(fleet: Fleet) -> None:
    fleet.configure(slice=1)
    fleet.worker("one", 1)
    work, coordinator = fleet.shop.work, fleet.coordinator
    asked: Any = coordinator.submit_many((f"k{i}", work.s(f"job{i}", 0.1)) for i in range(60))
    fleet.begun("job0")
    seconds, micro = coordinator.store._client.time()
    work.delay("task")
    fleet.begun("task")
    (began,) = fleet.stamps("task", "begin")
    assert began.at / 1e6 - (seconds + micro / 1e6) < 2 * 1 + 1
    assert len(fleet.stamps(what="end")) < 60
    for one in asked:
        assert coordinator.wait(one.id, 30).state == "succeeded"
