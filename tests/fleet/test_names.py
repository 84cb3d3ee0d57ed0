"""Workers that may not run a job: a second one of a name, one without its task, its app, its label; none at all."""

import signal
from typing import Any

from tests.fleet.mishaps import MODULE, tasks_of
from tests.harness.fleet import Fleet
from tests.harness.waiting import wait_until

BELL = "Task coordinator.run["  # Celery's line for each task that a worker receives
SHORT: dict[str, Any] = {"lock_ttl": 2, "node_ttl": 1.5, "sweep": 0.1, "heartbeat": 0.3}


def test_the_second_living_worker_of_a_name_takes_no_work_until_the_first_is_gone(fleet: Fleet) -> None:
    fleet.configure(**SHORT)
    first = fleet.worker("one")
    second = fleet.worker("one", ready=False)
    refused = "another living worker is named one@test: this one takes no work"
    wait_until(lambda: refused in second.log.read_text(), 20, fleet.logs)
    assert any("ERROR" in line for line in second.log.read_text().splitlines() if refused in line)
    coordinator, toil = fleet.coordinator, fleet.shop.toil
    mine = {child.pid for child in first.children()}
    for i in range(6):
        job = coordinator.wait(coordinator.submit(f"k{i}", toil.s(f"job{i}", 1)).id, 30)
        assert job.result in mine
    asked = coordinator.submit_many((f"k{i}", toil.s(f"more{i}", 2)) for i in range(30))
    assert {coordinator.wait(one.id, 30).result for one in asked} <= mine
    assert second.log.read_text().count(refused) == 1
    assert BELL in first.log.read_text()
    assert BELL not in second.log.read_text()

    first.kill(signal.SIGTERM)
    first.process.wait(30)
    late = coordinator.submit("late", toil.s("late", 1)).id
    assert coordinator.wait(late, 30).result in {child.pid for child in second.children()}
    assert BELL in second.log.read_text()
    assert coordinator.counts()["losses"] == 0


def test_the_end_of_a_second_worker_of_a_name_touches_no_job_of_the_first(fleet: Fleet) -> None:
    fleet.configure(**SHORT)
    fleet.worker("one")
    second = fleet.worker("one", ready=False)
    wait_until(lambda: "this one takes no work" in second.log.read_text(), 20, fleet.logs)
    fleet.coordinator.submit("k", fleet.shop.work.s("job", 4), job_id="job", max_losses=0)
    fleet.begun("job")
    second.kill(signal.SIGTERM)
    second.process.wait(30)
    assert fleet.coordinator.wait("job", 30).state == "succeeded"
    assert fleet.nodes() == ["one@test"]


def test_a_worker_whose_name_is_taken_while_it_was_silent_leaves_the_bells_to_the_other(fleet: Fleet) -> None:
    fleet.configure(**SHORT)
    first = fleet.worker("one")
    warden = first.warden()
    warden.suspend()
    wait_until(lambda: fleet.nodes() == [], 20, fleet.logs)
    second = fleet.worker("one")
    warden.resume()
    wait_until(lambda: "Canceling queue coordinator.node.one@test" in first.log.read_text(), 20, fleet.logs)
    before = first.log.read_text().count(BELL)
    mine = {child.pid for child in second.children()}
    for i in range(6):
        job_id = fleet.coordinator.submit(f"k{i}", fleet.shop.toil.s(f"job{i}", 1)).id
        assert fleet.coordinator.wait(job_id, 30).result in mine
    assert first.log.read_text().count(BELL) == before


def test_a_job_waits_for_a_worker_that_knows_its_task_and_why_says_so(fleet: Fleet) -> None:
    tasks, coordinator = tasks_of(fleet), fleet.coordinator
    fleet.worker("plain")
    job_id = coordinator.submit("a", tasks.until.s("job", 1)).id
    assert coordinator.wait(coordinator.submit("b", fleet.shop.add.s(1, 2)).id, 20).result == 3
    lacking = coordinator.why(job_id).causes[-1]
    assert (lacking.code, lacking.facts["lacks"]) == ("rejected.task", "tests.harness.apps.mishaps.until")
    assert coordinator.job(job_id).state == "ready"
    fleet.worker("knowing", 2, "-I", MODULE)
    job = coordinator.wait(job_id, 20)
    assert (job.state, job.node, job.attempt) == ("succeeded", "knowing@test", 1)


def test_a_worker_of_another_app_runs_nothing_of_this_one_though_it_consumes_its_queue(fleet: Fleet) -> None:
    assert fleet.depot
    fleet.worker("stranger", 2, "-Q", "depot,celery", app="depot")
    coordinator, work = fleet.coordinator, fleet.shop.work
    job_id = coordinator.submit("a", work.s("job")).id
    other = fleet.depot.coordinator.submit("b", fleet.depot.add.s(1, 2)).id
    assert coordinator.wait(other, 20).result == 3
    assert coordinator.why(job_id).codes == ["waiting.node", "rejected.app"]
    fleet.worker("own")
    assert coordinator.wait(job_id, 20).node == "own@test"
    assert fleet.stamps(what="astray") == []


def test_without_any_worker_a_job_is_accepted_and_waits_for_one(fleet: Fleet) -> None:
    coordinator, add = fleet.coordinator, fleet.shop.add
    asked = coordinator.submit("a", add.s(1, 2))
    assert asked.accepted
    assert coordinator.why(asked.id).codes == ["waiting.fleet"]
    fleet.worker()
    assert coordinator.wait(asked.id, 20).result == 3


def test_a_job_waits_for_a_node_with_its_labels(fleet: Fleet) -> None:
    coordinator, work = fleet.coordinator, fleet.shop.work
    fleet.worker("plain")
    fleet.worker("big", COORDINATOR_LABELS="big")
    job_id = coordinator.submit("a", work.s("job"), needs={"gpu", "big"}).id
    assert {cause.facts["lacks"] for cause in coordinator.why(job_id).causes[1:]} == {"big", "gpu"}
    assert coordinator.wait(coordinator.submit("b", work.s("other")).id, 20).state == "succeeded"
    assert coordinator.job(job_id).state == "ready"
    fleet.worker("gpu", COORDINATOR_LABELS="gpu, big")
    assert coordinator.wait(job_id, 20).node == "gpu@test"
    labels = {node.name: node.labels for node in coordinator.nodes()}
    assert labels == {"plain@test": (), "big@test": ("big",), "gpu@test": ("big", "gpu")}
