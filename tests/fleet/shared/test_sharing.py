"""A node's slots: they follow its pool, jobs and ordinary tasks share them, and a node that joins takes its share."""

from itertools import accumulate

from tests.harness.fleet import Fleet, server_seconds
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

NODE = Node("depot", 2, settings={"sweep": 0.1, "heartbeat": 0.3, "node_ttl": 4})


def capacity(fleet: Fleet) -> int:
    (node,) = fleet.coordinator.nodes()
    return node.capacity


def at_once(fleet: Fleet) -> int:
    """The most bodies that ever ran beside each other."""
    return max(accumulate({"begin": 1, "end": -1}[stamp.what] for stamp in fleet.stamps()))


def test_capacity_follows_a_pool_that_grows_and_shrinks(fleet: Fleet) -> None:
    depot, coordinator = fleet.depot, fleet.depot.coordinator
    control, node = depot.app.control, "one@test"
    jobs = [coordinator.submit(f"k{i}", depot.held.s(f"job{i}")).id for i in range(5)]
    fleet.begun("job0", "job1")
    control.pool_grow(2, destination=[node])
    wait_until(lambda: capacity(fleet) == 4, what=fleet.logs)
    fleet.begun("job0", "job1", "job2", "job3")
    assert fleet.stamps("job4") == []
    for i, job_id in enumerate(jobs):
        fleet.go(f"job{i}")
        assert coordinator.wait(job_id, 60).state == "succeeded"
    wait_until(lambda: (control.inspect().active() or {}).get(node) == [], what=fleet.logs)
    control.pool_shrink(2, destination=[node])
    wait_until(lambda: capacity(fleet) == 2, what=fleet.logs)
    assert at_once(fleet) == 4


def test_a_pool_that_grows_by_itself_grows_for_jobs(fleet: Fleet) -> None:
    depot, coordinator = fleet.depot, fleet.depot.coordinator
    coordinator.drain("one@test", why="only the other one is to work")
    fleet.worker("grows", 1, "--autoscale=3,1", app="depot")
    jobs = [coordinator.submit(f"k{i}", depot.held.s(f"job{i}")).id for i in range(4)]
    wait_until(lambda: len(fleet.stamps(what="begin")) == 3, what=fleet.logs)
    for i, job_id in enumerate(jobs):
        fleet.go(f"job{i}")
        assert coordinator.wait(job_id, 60).state == "succeeded"
    assert at_once(fleet) == 3
    coordinator.undrain("one@test")


def test_ordinary_tasks_go_to_free_slots_only_and_share_them_with_jobs(fleet: Fleet) -> None:
    depot, coordinator = fleet.depot, fleet.depot.coordinator
    names = [f"task{i}" for i in range(5)]
    for name in names:
        depot.held.delay(name)
    fleet.begun("task0", "task1")
    wait_until(lambda: coordinator.nodes()[0].ordinary == 2, what=fleet.logs)
    with fleet.server.client(1) as broker:
        wait_until(lambda: broker.llen(f"{fleet.prefix}.depot") == 3)
    job_id = coordinator.submit("a", depot.held.s("job")).id
    (node,) = coordinator.nodes()
    assert (node.ordinary, node.running, node.rung) == (2, 0, 0)
    assert coordinator.why(job_id).causes[-1].text.endswith("without a free slot: one@test (2 of 2)")
    for name in [*names, "job"]:
        fleet.go(name)
    assert coordinator.wait(job_id, 60).state == "succeeded"
    wait_until(lambda: len(fleet.stamps(what="end")) == 6, what=fleet.logs)
    assert at_once(fleet) == 2
    wait_until(lambda: coordinator.nodes()[0].ordinary == 0)


def test_a_node_that_joins_a_busy_fleet_takes_from_what_is_ready_at_once(fleet: Fleet) -> None:
    depot, coordinator = fleet.depot, fleet.depot.coordinator
    for name in ("long", "gate"):
        coordinator.submit(name, depot.held.s(name))
    fleet.begun("long", "gate")
    jobs = [(f"k{i % 200}", depot.work.s(f"{i % 200}.{i // 200}", 0.25)) for i in range(220)]
    found = coordinator.submit_many(jobs)
    two = fleet.worker("two", 2, app="depot")
    joined = server_seconds(fleet) * 1e6
    fleet.go("gate")
    assert {coordinator.wait(one.id, 60).state for one in found} == {"succeeded"}
    stamps = fleet.stamps()
    begins = {stamp.name: stamp.at for stamp in stamps if stamp.what == "begin"}
    spans = {stamp.name: (begins[stamp.name], stamp.at) for stamp in stamps if stamp.what == "end"}
    assert "long" not in spans, "all was done beside the long job"
    for i in range(20):
        assert spans[f"{i}.0"][1] <= spans[f"{i}.1"][0]
    nodes = [coordinator.job(submission.id).node for submission in found]
    left = [(max(begin, joined), end) for begin, end in spans.values() if end > joined]
    assert nodes.count(two.name) > len(found) / 2
    ideal = sum(end - begin for begin, end in left) / 3
    taken = max(end for _, end in left) - joined
    assert taken < 2.5 * ideal, f"{taken} of {ideal} us: a node that takes nothing leaves three times the work"
    fleet.go("long")
    wait_until(lambda: not coordinator.lane("long").length)
