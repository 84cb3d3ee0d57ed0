"""The last free slot of a node: wake-ups and the messages of a Redis broker take it in turns."""

from itertools import groupby

from tests.harness.fleet import Fleet
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

NODE = Node("depot", 1, settings={"sweep": 0.1, "heartbeat": 0.3, "node_ttl": 4, "slice": 0.3})


def test_a_task_never_waits_behind_a_job_while_another_node_is_idle(fleet: Fleet) -> None:
    depot, coordinator = fleet.depot, fleet.depot.coordinator
    fleet.worker("two", 1, app="depot")
    for number in range(8):
        job, task = f"job{number}", f"task{number}"
        job_id = coordinator.submit("a", depot.held.s(job)).id
        fleet.begun(job)
        depot.held.delay(task)
        fleet.begun(task)
        fleet.go(job)
        fleet.go(task)
        assert coordinator.wait(job_id, 60).state == "succeeded"
        wait_until(lambda task=task: fleet.stamps(task, "end"), what=fleet.logs)


def test_floods_of_jobs_and_of_tasks_share_a_single_slot(fleet: Fleet) -> None:
    depot, coordinator = fleet.depot, fleet.depot.coordinator
    for number in range(40):
        depot.work.delay(f"task{number}", 0.02)
    jobs = coordinator.submit_many((f"k{number}", depot.work.s(f"job{number}", 0.02)) for number in range(60))
    for one in jobs:
        assert coordinator.wait(one.id, 60).state == "succeeded"
    wait_until(lambda: len(fleet.stamps(what="end")) == 100, 60, fleet.logs)
    begun = [stamp.name[0] for stamp in sorted(fleet.stamps(what="begin"), key=lambda stamp: stamp.at)]
    turns = [(kind, len(list(run))) for kind, run in groupby(begun)]
    jobs_left, tasks_left = 60, 40
    for kind, number in turns:
        if kind == "t" and jobs_left < 60:
            assert number <= 2 or not jobs_left, f"jobs waited for more than one task: {turns}"
        if kind == "j":
            assert number <= 2 * 0.3 / 0.02 or not tasks_left, f"tasks waited for more than two slices: {turns}"
        jobs_left, tasks_left = jobs_left - number * (kind == "j"), tasks_left - number * (kind == "t")
