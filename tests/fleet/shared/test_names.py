"""Workers that may not run a job: a second one of a name, one without its task or its label. What one leaves behind."""

import signal
from contextlib import suppress
from typing import Any

from psutil import NoSuchProcess

from tests.fleet.mishaps import MODULE, tasks_of
from tests.harness.fleet import Fleet, Worker, kill_all
from tests.harness.standing import Node
from tests.harness.stopping import stop
from tests.harness.waiting import wait_until

BELL = "Task coordinator.run["  # Celery's line for each task that a worker receives
NODE = Node("shop", 2, settings={"lock_ttl": 5, "node_ttl": 4, "sweep": 0.1, "heartbeat": 0.3, "labels": "big"})
OTHER = "one@test"
REFUSED = "another living worker is named pair@test: this one takes no work"


def refused(fleet: Fleet) -> Worker:
    """A further worker of the name `pair`."""
    worker = fleet.worker("pair", ready=False)
    wait_until(lambda: REFUSED in worker.log.read_text(), what=fleet.logs)
    return worker


def of(*workers: Worker) -> set[int]:
    """Their pool processes."""
    return {child.pid for worker in workers for child in worker.children()}


def test_of_the_workers_of_a_name_one_works_and_the_next_takes_over_once_it_ended_or_was_killed(fleet: Fleet) -> None:
    coordinator = fleet.coordinator
    first = fleet.worker("pair")
    second = refused(fleet)
    coordinator.drain(OTHER, why="only workers of the other name are to work")
    works_alone(fleet, first, second)
    coordinator.submit("k", fleet.shop.work.s("long", 4), job_id="long", max_losses=0)
    fleet.begun("long")
    second.kill(signal.SIGTERM)
    second.process.wait(60)
    assert coordinator.wait("long", 60).state == "succeeded", "the end of one without work touches no job"
    assert sorted(fleet.nodes()) == [OTHER, first.name]
    assert coordinator.counts()["losses"] == 0

    third = refused(fleet)
    goes_on_with_what_was_grabbed(fleet, first, third)
    fourth = refused(fleet)
    last = coordinator.submit("report", fleet.shop.toil.s("last", 1), instance="b").id
    assert coordinator.wait(last, 60).result in of(third), "it stays the node"
    losses = coordinator.counts()["losses"]
    third.kill(signal.SIGTERM)
    third.process.wait(60)
    late = coordinator.submit("late", fleet.shop.toil.s("late", 1)).id
    assert coordinator.wait(late, 60).result in of(fourth)
    assert BELL in fourth.log.read_text()
    assert coordinator.counts()["losses"] == losses
    coordinator.undrain(OTHER)


def works_alone(fleet: Fleet, first: Worker, second: Worker) -> None:
    coordinator, toil, mine = fleet.coordinator, fleet.shop.toil, of(first)
    assert any("ERROR" in line for line in second.log.read_text().splitlines() if REFUSED in line)
    for i in range(6):
        job = coordinator.wait(coordinator.submit(f"k{i}", toil.s(f"job{i}", 1)).id, 60)
        assert job.result in mine
    asked = coordinator.submit_many((f"k{i}", toil.s(f"more{i}", 2)) for i in range(30))
    assert {coordinator.wait(one.id, 60).result for one in asked} <= mine
    assert second.log.read_text().count(REFUSED) == 1
    assert BELL in first.log.read_text()
    assert BELL not in second.log.read_text()


def goes_on_with_what_was_grabbed(fleet: Fleet, first: Worker, heir: Worker) -> None:
    """Kill the first one at its work."""
    coordinator = fleet.coordinator
    grabbed = coordinator.submit("report", fleet.shop.toil.s("grabbed", 100), instance="a")
    fleet.begun("grabbed")
    (before,) = coordinator.grabs("report")
    assert before.winner
    assert before.winner.pid in of(first)
    lost: Any = coordinator.grab("report", "a", "a process")
    kill_all(first)
    first.process.wait()
    (after,) = coordinator.grabs("report")
    assert after.state == "running", "its job goes on: nobody else takes it over"
    assert coordinator.wait(grabbed.id, 60).result in of(heir)
    assert (lost.wait(60), lost.won) == ("complete", False)
    (done,) = coordinator.grabs("report")
    assert done.winner
    assert done.winner.pid in of(heir)
    assert (done.attempt, done.fence > before.fence) == (1, True)


def test_a_worker_whose_name_is_taken_while_it_was_silent_leaves_the_bells_to_the_other(fleet: Fleet) -> None:
    first = fleet.worker("pair")
    fleet.coordinator.drain(OTHER, why="only workers of the other name are to work")
    supervisor = first.supervisor()
    stop(supervisor)
    wait_until(lambda: fleet.nodes() == [OTHER], what=fleet.logs)
    second = fleet.worker("pair")
    with suppress(NoSuchProcess):  # the worker has replaced it, where it was silent for long
        supervisor.resume()
    wait_until(lambda: REFUSED in first.log.read_text(), what=fleet.logs)
    before = first.log.read_text().count(BELL)
    mine = of(second)
    for i in range(6):
        job_id = fleet.coordinator.submit(f"k{i}", fleet.shop.toil.s(f"job{i}", 1)).id
        assert fleet.coordinator.wait(job_id, 60).result in mine
    assert first.log.read_text().count(BELL) == before
    fleet.coordinator.undrain(OTHER)


def test_a_job_waits_for_a_worker_that_knows_its_task_and_why_says_so(fleet: Fleet) -> None:
    tasks, coordinator = tasks_of(fleet), fleet.coordinator
    job_id = coordinator.submit("a", tasks.until.s("job", 1)).id
    assert coordinator.wait(coordinator.submit("b", fleet.shop.add.s(1, 2)).id, 60).result == 3
    lacking = coordinator.why(job_id).causes[-1]
    assert (lacking.code, lacking.facts["lacks"]) == ("rejected.task", "tests.harness.apps.mishaps.until")
    assert coordinator.job(job_id).state == "ready"
    fleet.worker("knowing", 2, "-I", MODULE)
    job = coordinator.wait(job_id, 60)
    assert (job.state, job.node, job.attempt) == ("succeeded", "knowing@test", 1)


def test_a_job_waits_for_a_node_with_its_labels(fleet: Fleet) -> None:
    coordinator, work = fleet.coordinator, fleet.shop.work
    job_id = coordinator.submit("a", work.s("job"), needs={"gpu", "big"}).id
    assert {cause.facts["lacks"] for cause in coordinator.why(job_id).causes[1:]} == {"gpu"}
    assert coordinator.wait(coordinator.submit("b", work.s("other")).id, 60).state == "succeeded"
    assert coordinator.job(job_id).state == "ready"
    fleet.worker("gpu", COORDINATOR_LABELS="gpu, big")
    assert coordinator.wait(job_id, 60).node == "gpu@test"
    assert {node.name: node.labels for node in coordinator.nodes()} == {OTHER: ("big",), "gpu@test": ("big", "gpu")}


def test_a_node_of_a_new_name_leaves_no_queue_and_no_binding_on_redis(fleet: Fleet) -> None:
    worker = fleet.worker("pod-1", 1)
    fleet.coordinator.drain(OTHER, why="only the other one is to work")
    job = fleet.coordinator.submit("k", fleet.shop.add.s(1, 2))
    assert fleet.coordinator.wait(job.id, 60).result == 3
    worker.process.terminate()
    worker.process.wait(60)
    with fleet.server.client(1) as broker:
        names = [str(name) for name in broker.keys(f"{fleet.prefix}.*")]
        kept = [name for name in names if "pod-" in name]
        bound = [member for name in names if "binding." in name for member in broker.smembers(name)]
    assert kept == []
    assert bound
    assert not [member for member in bound if "pod-" in member]
    fleet.coordinator.undrain(OTHER)
