"""A node is taken out: nothing new for it, what runs there ends or is handed over, and no loss is counted."""

import signal
from typing import Any

import pytest

from coordinator import Coordinator
from tests.harness.fleet import Fleet, Worker
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

SHORT: dict[str, Any] = {"lock_ttl": 5, "node_ttl": 4, "sweep": 0.1, "heartbeat": 0.3}
NODE = Node("depot", 2, settings=SHORT)
OTHER = "one@test"


def begun_on(coordinator: Coordinator, job_ids: list[str], worker: Worker) -> set[str]:
    return {job_id for job_id in job_ids if coordinator.job(job_id).node == worker.name}


@pytest.mark.parametrize("how", ["operator", "SIGTERM"])
def test_a_drain_under_load_counts_no_loss_and_runs_no_job_twice(fleet: Fleet, how: str) -> None:
    first = fleet.worker("first", app="depot")
    work, coordinator = fleet.depot.work, fleet.depot.coordinator
    asked = [(f"k{i % 20}", work.s(f"{i:03}", 0.05)) for i in range(160)]
    ids = [one.id for one in coordinator.submit_many(asked)]
    wait_until(lambda: len(fleet.stamps(what="end")) > 20, what=fleet.logs)
    if how == "operator":
        assert coordinator.drain(first.name, why="disk")
        nodes = {node.name: node for node in coordinator.nodes()}
        assert (nodes[first.name].draining, nodes[first.name].score) == (True, None)
        wait_until(
            lambda: [one for one in coordinator.nodes() if (one.name, one.running, one.rung) == (first.name, 0, 0)]
        )
    else:
        first.kill(signal.SIGTERM)
        assert first.process.wait(60) == 0
    before = begun_on(coordinator, ids, first)
    jobs = [coordinator.wait(job_id, 60) for job_id in ids]
    assert {(job.state, job.attempt, job.losses) for job in jobs} == {("succeeded", 1, 0)}
    assert begun_on(coordinator, ids, first) == before
    assert 0 < len(before) < len(ids)
    assert sorted(stamp.name for stamp in fleet.stamps(what="begin")) == [f"{i:03}" for i in range(160)]
    assert coordinator.counts()["losses"] == 0
    if how == "operator":
        coordinator.drain(OTHER, why="so that the first one is needed")
        left = coordinator.submit("k", work.s("left")).id
        assert coordinator.undrain(first.name)
        assert coordinator.wait(left, 60).node == first.name
        coordinator.undrain(OTHER)


def test_a_worker_told_to_end_ends_its_long_job_takes_nothing_new_and_is_seen_until_then(fleet: Fleet) -> None:
    worker = fleet.worker("first", app="depot")
    coordinator, depot = fleet.depot.coordinator, fleet.depot
    coordinator.drain(OTHER, why="only the first one is to work")

    def seen() -> list[tuple[bool, int]]:
        return [(node.draining, node.running) for node in coordinator.nodes() if node.name == worker.name]

    long = coordinator.submit("ledger", depot.held.s("long")).id
    fleet.begun("long")
    worker.kill(signal.SIGTERM)
    wait_until(lambda: seen() == [(True, 1)], what=fleet.logs)
    late = [coordinator.submit(f"k{i}", depot.work.s(f"late{i}")).id for i in range(4)]
    beats = 2 * SHORT["node_ttl"]
    began, *_ = coordinator.store._client.time()
    wait_until(lambda: coordinator.store._client.time()[0] - began > beats)
    assert seen() == [(True, 1)]
    assert {coordinator.job(job_id).state for job_id in late} == {"ready"}
    assert coordinator.why(late[0]).codes == ["waiting.node", "rejected.drains"]
    fleet.go("long")
    job = coordinator.wait(long, 60)
    assert (job.state, job.attempt, job.losses) == ("succeeded", 1, 0)
    assert worker.process.wait(60) == 0
    wait_until(lambda: not seen())
    assert fleet.stamps("late0") == []
    coordinator.undrain(OTHER)
    assert {coordinator.wait(job_id, 60).state for job_id in late} == {"succeeded"}


@pytest.mark.parametrize("how", ["operator", "SIGTERM"])
def test_what_runs_for_too_long_on_a_draining_node_goes_on_elsewhere_without_a_loss(fleet: Fleet, how: str) -> None:
    first = fleet.worker("first", app="depot", COORDINATOR_DRAIN_TIMEOUT="1")
    coordinator, depot = fleet.depot.coordinator, fleet.depot
    coordinator.drain(OTHER, why="only the first one is to work")
    long = coordinator.submit("ledger", depot.held.s("long"), max_losses=0).id
    behind = coordinator.submit("ledger", depot.work.s("behind")).id
    fleet.begun("long")
    coordinator.undrain(OTHER)
    if how == "operator":
        coordinator.drain(first.name, why="disk")
    else:
        first.kill(signal.SIGTERM)
    wait_until(lambda: len(fleet.stamps("long", "begin")) == 2, what=fleet.logs)
    once, again = fleet.stamps("long", "begin")
    assert (again.at - once.at) / 1e6 > 1
    for _ in range(2):  # the process that was just stopped may take one of them with it
        fleet.go("long")
    job = coordinator.wait(long, 60)
    assert (job.state, job.node, job.attempt, job.losses) == ("succeeded", OTHER, 1, 0)
    assert len(fleet.stamps("long", "end")) == 1
    assert coordinator.wait(behind, 60).node == OTHER
    assert coordinator.counts()["losses"] == 0
    if how == "SIGTERM":
        assert first.process.wait(60) == 0
    else:
        assert first.process.poll() is None
        coordinator.undrain(first.name)
