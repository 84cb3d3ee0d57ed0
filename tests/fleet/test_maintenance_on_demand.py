"""Maintenance of an app without an inbox or plugins: one node of a fleet starts it once there is something to do."""

import psutil

from tests.harness.fleet import Fleet, Worker
from tests.harness.waiting import wait_until

PLAIN = {"app": "depot"}


def maintenance_of(*workers: Worker) -> list[psutil.Process]:
    return [process for worker in workers for supervisor in worker.supervisors() for process in supervisor.children()]


def test_a_fleet_at_rest_has_none_and_one_node_starts_it_for_a_result_that_is_owed(fleet: Fleet) -> None:
    fleet.configure(sweep=0.1, heartbeat=0.3)
    workers = [fleet.worker(name, 1, **PLAIN) for name in ("one", "two", "three")]
    submit, depot = fleet.depot.coordinator.submit, fleet.depot
    assert submit("k", depot.add.s(1, 2)).get(timeout=60) == 3
    assert maintenance_of(*workers) == []
    late = submit("k", depot.add.s(1, 2).set(countdown=3600))
    depot.coordinator.cancel(late.id)
    wait_until(lambda: depot.app.AsyncResult(late.id).state == "REVOKED", what=fleet.logs)
    assert len(maintenance_of(*workers)) == 1


def test_it_goes_on_at_another_node_when_its_node_is_killed(fleet: Fleet) -> None:
    fleet.configure(sweep=0.1, heartbeat=0.3)
    workers = [fleet.worker(name, 1, **PLAIN) for name in ("one", "two")]
    submit, depot = fleet.depot.coordinator.submit, fleet.depot
    for number in range(2):
        owed = submit("k", depot.add.s(1, 2).set(countdown=3600))
        depot.coordinator.cancel(owed.id)
        wait_until(lambda owed=owed: depot.app.AsyncResult(owed.id).state == "REVOKED", what=fleet.logs)
        (process,) = maintenance_of(*workers)
        (theirs,) = [worker for worker in workers if process.ppid() == worker.supervisor().pid]
        if not number:
            workers.remove(theirs)
            theirs.end()


def test_a_job_whose_parts_have_ended_goes_on_and_a_failed_one_is_told(fleet: Fleet) -> None:
    fleet.configure(sweep=0.1, heartbeat=0.3)
    worker = fleet.worker("one", 2, **PLAIN)
    depot = fleet.depot
    assert depot.coordinator.submit("k", depot.sub_job.s("other", "child")).get(timeout=60)
    assert len(maintenance_of(worker)) == 1
    failed = depot.coordinator.submit("k", depot.fail.s("no"))
    depot.coordinator.wait(failed.id, 60)
    wait_until(lambda: f"alert (failed): job {failed.id}" in worker.log.read_text(), what=fleet.logs)
