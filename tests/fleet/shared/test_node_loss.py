"""A node is killed or paused: what it held goes on once, and what it says late is refused."""

import signal
from typing import Any

import psutil
import pytest

from tests.harness.fleet import ANSWERED, Fleet, Worker, kill_all, server_seconds
from tests.harness.standing import Node
from tests.harness.stopping import stop
from tests.harness.waiting import wait_until

TTL = 5.0
SHORT: dict[str, Any] = {"lock_ttl": TTL, "node_ttl": 4, "sweep": 0.2, "heartbeat": 0.5, "timeout": 0.5}
NODE = Node("depot", 3, settings=SHORT)
OTHER = "one@test"


def on_its_own(fleet: Fleet, name: str, concurrency: int = 2, **environ: str) -> Worker:
    """A node beside the shared one, which takes nothing until it is undrained."""
    worker = fleet.worker(name, concurrency, app="depot", **environ)
    fleet.depot.coordinator.drain(OTHER, why="only the other one is to work")
    return worker


def pass_server_time(fleet: Fleet, seconds: float) -> None:
    began = server_seconds(fleet)
    wait_until(lambda: server_seconds(fleet) - began >= seconds, seconds + 60)


def begun(fleet: Fleet, name: str, times: int) -> None:
    wait_until(lambda: len(fleet.stamps(name, "begin")) >= times, what=lambda: fleet.logs()[-6000:])


@pytest.mark.broker
def test_of_a_killed_node_what_ran_and_what_was_ready_is_accepted_once_elsewhere(fleet: Fleet) -> None:
    first = on_its_own(fleet, "first", 3)
    depot, coordinator = fleet.depot, fleet.depot.coordinator
    running = [coordinator.submit(f"r{i}", depot.held.s(f"r{i}")).id for i in range(3)]
    fleet.begun("r0", "r1", "r2")
    asked = coordinator.submit_many((f"k{i}", depot.work.s(f"k{i}")) for i in range(500))
    kill_all(first)
    coordinator.undrain(OTHER)
    for i in range(3):
        begun(fleet, f"r{i}", 2)
        fleet.go(f"r{i}")
    found = [coordinator.wait(job_id, 60) for job_id in [*running, *(one.id for one in asked)]]
    assert {(job.state, job.node) for job in found} == {("succeeded", OTHER)}
    assert [(job.attempt, job.losses) for job in found] == [(2, 1)] * 3 + [(1, 0)] * 500
    ends = [stamp.name for stamp in fleet.stamps(what="end")]
    assert sorted(ends) == sorted([f"r{i}" for i in range(3)] + [f"k{i}" for i in range(500)])
    assert fleet.coordinator.counts()["losses"] == 3


@pytest.mark.parametrize("task", ["held", "late"])
def test_a_sub_task_that_dies_with_its_node_is_a_loss_of_the_job_that_waits_for_it(fleet: Fleet, task: str) -> None:
    """Where its message was acknowledged before it ran, it is nowhere. One with late acknowledgement comes again after
    an hour, when its attempt is long over: it does not run.
    """
    first = on_its_own(fleet, "first")
    depot, coordinator = fleet.depot, fleet.depot.coordinator
    control = depot.app.control
    control.cancel_consumer("depot", destination=[OTHER], **ANSWERED)  # it takes no sub-task either
    parts = [[[task, "slow"]], [["work", "again"]]]
    job_id = coordinator.submit("k", depot.spread.s("parent", *parts)).id
    fleet.begun("parent", "slow")
    wait_until(lambda: coordinator.job(job_id).state == "parked")
    kill_all(first)
    coordinator.undrain(OTHER)
    control.add_consumer("depot", destination=[OTHER], **ANSWERED)
    store = coordinator.store

    def look() -> bool:
        """At once, not within 10 s."""
        store._client.zadd(store.key("parked", "depot"), {job_id: 1}, xx=True)
        return bool(fleet.stamps("again", "end"))

    wait_until(look, what=fleet.logs)
    job = coordinator.wait(job_id, 60)
    assert (job.state, job.attempt, job.losses) == ("succeeded", 2, 1)
    with depot.app.connection_for_write(transport_options={"visibility_timeout": 0}) as connection:
        connection.default_channel.qos.restore_visible(interval=1)
    if task == "late":
        wait_until(lambda: "was delivered again, and does not run" in fleet.logs(), what=fleet.logs)
    wait_until(lambda: fleet.messages() == 0, what=fleet.logs)
    assert len(fleet.stamps("slow", "begin")) == 1


def test_children_of_a_paused_main_process_keep_their_jobs_and_others_take_what_it_does_not(fleet: Fleet) -> None:
    worker = on_its_own(fleet, "paused")
    depot, coordinator = fleet.depot, fleet.depot.coordinator
    job_ids = [coordinator.submit(f"k{i}", depot.held.s(f"job{i}")).id for i in range(2)]
    fleet.begun("job0", "job1")
    stop(worker.process)
    pass_server_time(fleet, 2 * TTL)
    for i, job_id in enumerate(job_ids):
        fleet.go(f"job{i}")
        job = coordinator.wait(job_id, 60)
        assert (job.state, job.attempt, job.losses) == ("succeeded", 1, 0)
    coordinator.undrain(OTHER)
    asked = server_seconds(fleet)
    waiting = coordinator.submit("other", depot.work.s("waiting")).id
    assert coordinator.wait(waiting, 60).node == OTHER
    assert server_seconds(fleet) - asked < 15, fleet.logs()
    worker.kill(signal.SIGCONT)


def test_a_paused_supervisor_costs_its_jobs_nothing_while_nobody_else_takes_them(fleet: Fleet) -> None:
    """Main process and supervisor stand still, so the leases lapse; the only other node may not run the job."""
    worker = fleet.worker("paused", 2, app="depot", COORDINATOR_LABELS="gpu")
    depot, coordinator = fleet.depot, fleet.depot.coordinator
    job_id = coordinator.submit("ledger", depot.held.s("job"), needs=["gpu"]).id
    fleet.begun("job")
    still = [psutil.Process(worker.pid), worker.supervisor()]
    stop(*still)
    wait_until(lambda: coordinator.job(job_id).state == "ready", what=fleet.logs)
    wait_until(lambda: fleet.nodes() == [OTHER], what=fleet.logs)
    fleet.go("job")
    job = coordinator.wait(job_id, 60)
    assert (job.state, job.node, job.attempt, job.losses) == ("succeeded", worker.name, 1, 0)
    for process in still:
        process.resume()
    wait_until(lambda: worker.name in fleet.nodes(), what=fleet.logs)
    assert len(fleet.stamps("job", "begin")) == 1
