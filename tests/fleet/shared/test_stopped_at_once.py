"""A worker that is stopped at once, with jobs at work: they go on elsewhere, and nothing counts against them."""

import os
import signal
from typing import Any

import pytest

from tests.harness.fleet import Fleet, Worker
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

NODE = Node("depot", 2, settings={"lock_ttl": 30, "sweep": 0.2, "retry_delay": 0.01, "heartbeat": 0.5, "node_ttl": 4})
OTHER = "one@test"


def twice(worker: Worker) -> None:
    """As a user at a terminal; the second one counts once the first was heard."""
    worker.kill(signal.SIGINT)
    wait_until(lambda: "Warm shutdown" in worker.log.read_text())
    worker.kill(signal.SIGINT)


def group(worker: Worker) -> None:
    os.killpg(worker.pid, signal.SIGTERM)


WAYS: dict[str, Any] = {
    "SIGQUIT": lambda worker: worker.kill(signal.SIGQUIT),
    "Ctrl-C twice": twice,
    "SIGTERM as SIGQUIT": lambda worker: worker.kill(signal.SIGTERM),
    "soft": lambda worker: worker.kill(signal.SIGQUIT),
    "SIGTERM to all": group,
    "SIGHUP to all": lambda worker: os.killpg(worker.pid, signal.SIGHUP),
}


def stopped_with_jobs(fleet: Fleet, how: str) -> tuple[list[str], float]:
    """A single job with a rollback and the second step of a chain, begun on a worker that was stopped; and when."""
    options = ("--", "worker.soft_shutdown_timeout=1") if how == "soft" else ()
    env: dict[str, Any] = {"REMAP_SIGTERM": "SIGQUIT"} if how == "SIGTERM as SIGQUIT" else {}
    first = fleet.worker("first", 2, *options, app="depot", fresh=bool(env), **env)
    depot, coordinator = fleet.depot, fleet.depot.coordinator
    coordinator.drain(OTHER, why="only the first one is to work")
    lone = coordinator.submit("a", depot.held.s("lone"), rollback=depot.work.si("undone"), max_losses=0).id
    steps = depot.work.s("before") | depot.held.si("step") | depot.work.si("after")
    chained = coordinator.submit("b", steps, rollback=depot.work.si("undone"), max_losses=0).id
    fleet.begun("lone", "step")
    coordinator.undrain(OTHER)
    WAYS[how](first)
    seconds, micro = coordinator.store._client.time()
    return [lone, chained], int(seconds) + int(micro) / 1e6


@pytest.mark.parametrize("how", WAYS)
def test_jobs_at_work_go_on_at_another_node_and_neither_attempt_nor_loss_is_counted(fleet: Fleet, how: str) -> None:
    ids, stopped = stopped_with_jobs(fleet, how)
    for name in ("lone", "step"):
        wait_until(lambda name=name: len(fleet.stamps(name, "begin")) == 2, what=fleet.logs)  # type: ignore[misc]
        assert fleet.stamps(name, "begin")[1].at / 1e6 - stopped < 20, "its lease lasts 30 s"
        fleet.go(name)
        fleet.go(name)  # the first one may be gone with a body that was stopped
    jobs = [fleet.coordinator.wait(job_id, 60) for job_id in ids]
    assert [(job.state, job.attempt, job.losses, job.node) for job in jobs] == [("succeeded", 1, 0, OTHER)] * 2
    assert (fleet.stamps("undone"), len(fleet.stamps("before"))) == ([], 2)
    assert fleet.coordinator.counts()["losses"] == 0
    first = fleet.workers[-1]
    if "HUP" not in how:  # that restarts the worker
        first.process.wait(60)


def test_a_signal_to_one_pool_process_alone_is_a_loss(fleet: Fleet) -> None:
    (worker,) = fleet.workers
    job_id = fleet.depot.coordinator.submit("a", fleet.depot.held.s("job")).id
    fleet.begun("job")
    work: Any = fleet.coordinator.store._client.hgetall(fleet.coordinator.store.key("work", worker.name))
    (runner,) = work
    os.kill(int(runner.decode().partition(".")[0]), signal.SIGTERM)
    wait_until(lambda: len(fleet.stamps("job", "begin")) == 2, what=fleet.logs)
    fleet.go("job")
    fleet.go("job")
    job = fleet.coordinator.wait(job_id, 60)
    assert (job.state, job.losses) == ("succeeded", 1)


def test_where_the_pool_cannot_stop_a_body_it_ends_first(fleet: Fleet) -> None:
    worker = fleet.worker("solo", 1, app="depot", pool="solo")
    fleet.depot.coordinator.drain(OTHER, why="only the other one is to work")
    job_id = fleet.depot.coordinator.submit("a", fleet.depot.held.s("job")).id
    fleet.begun("job")
    worker.kill(signal.SIGQUIT)
    wait_until(lambda: "Cold shutdown" in worker.log.read_text(), what=fleet.logs)
    fleet.go("job")
    job = fleet.coordinator.wait(job_id, 60)
    assert (job.state, job.attempt, job.losses) == ("succeeded", 1, 0)
    worker.process.wait(60)
