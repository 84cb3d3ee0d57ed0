"""What is promised when a process, a supervisor, a node dies under a job: real workers, real kills."""

import os
import signal
from dataclasses import replace
from typing import Any

import psutil
import pytest

from tests.fleet.mishaps import MODULE, tasks_of
from tests.harness.fleet import Fleet, Worker
from tests.harness.installation import Stamp
from tests.harness.standing import Node
from tests.harness.stopping import stop
from tests.harness.waiting import wait_until

SHORT: dict[str, Any] = {"lock_ttl": 5, "node_ttl": 4, "sweep": 0.2, "heartbeat": 0.5}
NODE = Node("shop", 2, ("-I", MODULE), SHORT)
OTHER = "one@test"


def begun(fleet: Fleet, name: str, times: int = 1) -> list[Stamp]:
    """The begins of a job, once there are so many."""
    wait_until(lambda: len(fleet.stamps(name, "begin")) >= times, what=lambda: fleet.logs()[-6000:])
    return fleet.stamps(name, "begin")


def process_of(worker: Worker, fleet: Fleet, job_id: str) -> psutil.Process:
    """The pool process that runs the job."""
    work: Any = fleet.coordinator.store._client.hgetall(fleet.coordinator.store.key("work", worker.name))
    runner = next(runner for runner, value in work.items() if value.decode().endswith(" " + job_id))
    return psutil.Process(int(runner.decode().split(".")[0]))


def on_its_own(fleet: Fleet, name: str, *options: str, **environ: str) -> Worker:
    """A node with one process beside the shared one, which takes nothing until it is undrained."""
    worker = fleet.worker(name, 1, *options, **environ)
    fleet.coordinator.drain(OTHER, why="only the other one is to work")
    return worker


def server_us(fleet: Fleet) -> int:
    seconds, micro = fleet.coordinator.store._client.time()
    return int(seconds) * 1_000_000 + int(micro)


def test_a_killed_pool_process_costs_its_job_seconds_and_no_place_in_line(fleet: Fleet) -> None:
    worker, work = on_its_own(fleet, "first", COORDINATOR_LOCK_TTL="60"), fleet.shop.work
    first, second = fleet.coordinator.submit_many([("ledger", work.s("first", 3)), ("ledger", work.s("second"))])
    begun(fleet, "first")
    victim = process_of(worker, fleet, first.id)
    victim.kill()
    killed = server_us(fleet)
    once, again = begun(fleet, "first", 2)[:2]
    assert (again.at - killed) / 1e6 < 20, "its lease lasts 60 s"
    assert (once.attempt, again.attempt) == (1, 2)
    assert again.fence > once.fence
    job = fleet.coordinator.wait(second.id, 60)
    assert [(stamp.name, stamp.what) for stamp in fleet.stamps()] == [
        ("first", "begin"), ("first", "begin"), ("first", "end"), ("second", "begin"), ("second", "end"),
    ]  # fmt: skip
    lost = fleet.coordinator.job(first.id)
    assert (lost.state, lost.losses, lost.attempt, job.losses) == ("succeeded", 1, 2, 0)


@pytest.mark.parametrize("whom", ["worker", "worker and supervisor"])
def test_a_killed_node_costs_its_jobs_one_lease(fleet: Fleet, whom: str) -> None:
    first = on_its_own(fleet, "first")
    job = fleet.coordinator.submit("ledger", fleet.shop.held.s("job"))
    begun(fleet, "job")
    fleet.coordinator.undrain(OTHER)
    everyone = [psutil.Process(first.pid), *psutil.Process(first.pid).children(recursive=True)]
    if whom == "worker":
        first.kill()
    else:
        for process in everyone:
            process.kill()
    killed = server_us(fleet)
    again = begun(fleet, "job", 2)[1]
    assert (again.at - killed) / 1e6 < 2 + 20
    assert again.attempt == 2
    psutil.wait_procs(everyone, 60)  # else the word may go to a connection that the system has not closed yet
    fleet.go("job")
    found = fleet.coordinator.wait(job.id, 60)
    assert (found.state, found.node, len(fleet.stamps("job", "end"))) == ("succeeded", OTHER, 1)
    wait_until(lambda: fleet.nodes() == [OTHER])
    lost = {one.name: str(one) for one in fleet.coordinator.lost_nodes()}
    assert lost[first.name] == f"it held 1 job: {job.id} succeeded on {OTHER}"


def test_a_paused_process_that_comes_back_changes_nothing(fleet: Fleet) -> None:
    (worker,), shop = fleet.workers, fleet.shop
    work = shop.work.s("job", 1).set(link=shop.note.s(), link_error=shop.note_error.s())
    job = fleet.coordinator.submit("ledger", work)
    begun(fleet, "job")
    paused = process_of(worker, fleet, job.id)
    stop(paused)
    assert begun(fleet, "job", 2)[1].attempt == 2
    found = fleet.coordinator.wait(job.id, 60)
    assert (found.state, found.attempt, found.losses) == ("succeeded", 2, 1)
    wait_until(lambda: fleet.stamps("job", "noted"), what=fleet.logs)
    paused.resume()
    wait_until(lambda: "Redis refused the outcome: lost" in fleet.logs(), what=fleet.logs)
    assert fleet.coordinator.job(job.id) == replace(found, by=None), "a success drops its author"
    assert shop.app.AsyncResult(job.id).get(timeout=60) == "job"
    last = fleet.coordinator.submit("ledger", shop.add.s(2, 2))
    assert fleet.coordinator.wait(last.id, 60).result == 4
    assert len(fleet.stamps("job", "noted")) == 1
    assert fleet.stamps("job", "error") == []


def test_a_job_that_kills_its_process_again_and_again_ends_as_failed(fleet: Fleet) -> None:
    shop = fleet.shop
    killer = fleet.coordinator.submit("ledger", shop.die.s("killer").set(link_error=shop.note_error.s()), max_losses=2)
    behind = fleet.coordinator.submit("ledger", shop.add.s(1, 1))
    job = fleet.coordinator.wait(killer.id, 60)
    assert (job.state, job.losses, job.attempt) == ("failed", 3, 3)
    assert [stamp.attempt for stamp in fleet.stamps("killer")] == [1, 2, 3]
    assert fleet.coordinator.wait(behind.id, 60).result == 2
    wait_until(lambda: fleet.stamps(killer.id, "error"), what=fleet.logs)
    assert shop.app.AsyncResult(killer.id).state == "FAILURE"


def test_a_worker_killed_while_a_process_forked_later_still_works_is_noticed(fleet: Fleet) -> None:
    """The later process has inherited the supervisor's input from the worker; the kernel ends it with the worker."""
    first = on_its_own(fleet, "first")
    old = first.children()[0]
    old.kill()
    wait_until(lambda: [one for one in first.children() if one.pid != old.pid])
    job = fleet.coordinator.submit("ledger", fleet.shop.held.s("job"))
    begun(fleet, "job")
    fleet.coordinator.undrain(OTHER)
    os.kill(first.pid, signal.SIGKILL)
    killed = server_us(fleet)
    again = begun(fleet, "job", 2)[1]
    assert (again.at - killed) / 1e6 < 20
    for _ in range(2):  # the process that was just killed may take one
        fleet.go("job")
    assert fleet.coordinator.wait(job.id, 60).node == OTHER


def test_a_daemon_that_a_task_forked_keeps_no_dead_node_alive(fleet: Fleet) -> None:
    """It comes from a process that was born after the supervisor, and has inherited all that the worker had open."""
    worker = on_its_own(fleet, "parent", "-I", MODULE)
    old = worker.children()[0]
    old.kill()
    wait_until(lambda: [one for one in worker.children() if one.pid != old.pid])
    beside = [worker.supervisor(), worker.maintenance()]
    job = fleet.coordinator.submit("ledger", tasks_of(fleet).leaves_a_daemon.s("job"))
    daemon = psutil.Process(int(str(fleet.coordinator.wait(job.id, 60).result)))
    try:
        worker.kill(signal.SIGTERM)
        worker.process.wait(60)
        gone, _ = psutil.wait_procs(beside, 60)
        assert len(gone) == 2
        assert daemon.is_running()
        assert fleet.nodes() == [OTHER]
    finally:
        daemon.kill()


def test_a_worker_that_ends_in_good_order_finishes_what_runs_and_signs_off(fleet: Fleet) -> None:
    worker = on_its_own(fleet, "ends")
    job = fleet.coordinator.submit("ledger", fleet.shop.work.s("job", 2))
    begun(fleet, "job")
    worker.kill(signal.SIGTERM)
    late = fleet.coordinator.submit("other", fleet.shop.add.s(1, 2))
    found = fleet.coordinator.wait(job.id, 60)
    assert (found.state, found.attempt) == ("succeeded", 1)
    worker.process.wait(60)
    wait_until(lambda: fleet.nodes() == [OTHER])
    assert fleet.coordinator.job(late.id).state == "ready"
    assert worker.name not in [one.name for one in fleet.coordinator.lost_nodes()]
    fleet.coordinator.undrain(OTHER)
    assert fleet.coordinator.wait(late.id, 60).result == 3
