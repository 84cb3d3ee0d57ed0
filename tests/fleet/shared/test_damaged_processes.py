"""Processes and files of a node that a body, or somebody else on its machine, has damaged: its jobs go on."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.mishaps import MODULE, marks, tasks_of
from tests.harness.fleet import Fleet
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

NODE = Node("shop", 1, ("-I", MODULE), {"lock_ttl": 5, "node_ttl": 4, "sweep": 0.2, "heartbeat": 0.5})
HOW = ["has no descriptors left", "cannot reach Redis", "may write to no file"]
HOW += ["is another user"] * (os.geteuid() == 0)


@pytest.fixture
def fleet(fleet: Fleet) -> Iterator[Fleet]:
    """At the end, no process of the pool has what a body did to it."""
    yield fleet
    for process in fleet.workers[0].children():
        process.kill()
        process.wait(60)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("harmed", ["by a job", "by a task before the first job"])
def test_twenty_jobs_run_on_a_node_whose_only_process_was_damaged(fleet: Fleet, how: str, harmed: str) -> None:
    submit, task = fleet.coordinator.submit, tasks_of(fleet).damages_its_process
    if harmed == "by a job":
        job = fleet.coordinator.wait(submit("k", task.s("damage", how)), 60)
        assert (job.state, job.losses) == ("succeeded", how == "cannot reach Redis")
    else:
        task.apply_async(("damage", how), ignore_result=True)
        fleet.begun("damage")
    ids = [submit(f"k{number % 4}", fleet.shop.work.s(f"{number}")).id for number in range(20)]
    for job_id in ids:
        job = fleet.coordinator.wait(job_id, 60)
        assert (job.state, job.losses) == ("succeeded", 0), fleet.logs()[-4000:]
    assert len(fleet.stamps(what="end")) == 20


def test_a_node_of_threads_that_cannot_reach_redis_loses_its_job_to_another_and_says_why(fleet: Fleet) -> None:
    """Its process stays, since other bodies may run there."""
    coordinator, other = fleet.coordinator, fleet.worker("other", 1, "-I", MODULE, pool="threads")
    coordinator.drain("one@test", why="only the other one is to work")
    coordinator.submit("k", tasks_of(fleet).damages_its_process.s("damage", "cannot reach Redis"), job_id="damage")
    wait_until(lambda: coordinator.job("damage").losses, what=fleet.logs)
    told = "the last runner there failed: StoreUnavailable"
    wait_until(lambda: told in str(coordinator.why(node=other.name)))
    # It has none in the moment in which it is rung again.
    wait_until(lambda: f"for node {other.name}, which has room for it; {told}" in str(coordinator.why("damage")))
    coordinator.undrain("one@test")
    job = coordinator.wait("damage", 60)
    assert (job.state, job.node, job.losses) == ("succeeded", "one@test", 1)
    assert "coordinator.run failed" in other.log.read_text()


def status_folder(fleet: Fleet) -> list[Path]:
    memory = Path("/dev/shm")
    return [*memory.glob(f"celery-coordinator-*-{fleet.workers[0].pid}.*")]


def test_a_body_keeps_its_lane_its_limit_and_its_cancel_where_somebody_empties_the_shared_memory(fleet: Fleet) -> None:
    submit, wait, work = fleet.coordinator.submit, fleet.coordinator.wait, fleet.shop.work
    for harm in ("files", "folder"):
        fleet.read_logs_from_here()
        first, second = f"first {harm}", f"second {harm}"
        submit("k", fleet.shop.work.s(first, 1.5), job_id=first)
        submit("k", work.s(second), job_id=second)
        fleet.begun(first)
        (folder,) = status_folder(fleet)
        for path in [*folder.iterdir()] if harm == "files" else []:
            path.unlink()
        if harm == "folder":
            shutil.rmtree(folder)
        assert [wait(name, 60).losses for name in (first, second)] == [0, 0]
        assert marks(fleet, first, second) == [f"{first} begin", f"{first} end", f"{second} begin", f"{second} end"]
        submit("k", work.s("late", 60), job_id=f"late {harm}", time_limit=1)
        assert (wait(f"late {harm}", 60).error or {})["type"] == "TimedOut"
        submit("k", work.s(f"ended {harm}", 60), job_id=f"ended {harm}")
        fleet.begun(f"ended {harm}")
        fleet.coordinator.cancel(f"ended {harm}", why="enough")
        assert wait(f"ended {harm}", 60).state == "cancelled"
        wait_until((folder / "worker").exists)  # by which a probe sees that it lives


@pytest.mark.parametrize("child", ["returns", "fails", "exits"])
def test_what_a_body_forked_and_comes_back_from_it_ends_nothing_and_begins_nothing(fleet: Fleet, child: str) -> None:
    submit, tasks = fleet.coordinator.submit, tasks_of(fleet)
    submit("k", tasks.forks.s("parent", child), job_id="parent")
    submit("k", fleet.shop.work.s("next"), job_id="next")
    wait_until(lambda: fleet.stamps("parent", "alone"), what=fleet.logs)
    assert fleet.coordinator.job("parent").state == "running"
    assert not fleet.stamps("next")
    fleet.go("parent")
    assert fleet.coordinator.wait("parent", 60).result == "the parent"
    assert fleet.coordinator.wait("next", 60).attempt == 1
    assert marks(fleet) == [
        *(f"parent {what}" for what in ("begin", "alone", "end", "returned")), "next begin", "next end",
    ]  # fmt: skip
    assert not [line for line in fleet.logs().splitlines() if "refused" in line]


NO_PIDFD = """
import os

def pidfd_open(pid, flags=0):
    raise PermissionError(1, "Operation not permitted")

os.pidfd_open = pidfd_open
"""


def test_limits_and_cancels_hold_on_a_system_that_gives_no_handles_of_processes(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_PIDFD)
    other = fleet.worker("other", 1, PYTHONPATH=str(tmp_path))
    coordinator, work = fleet.coordinator, fleet.shop.work
    coordinator.drain("one@test", why="only the other one is to work")
    coordinator.submit("k", work.s("late", 60), job_id="late", time_limit=1)
    coordinator.submit("k", work.s("cancelled", 60), job_id="cancelled")
    assert (coordinator.wait("late", 60).error or {})["type"] == "TimedOut"
    fleet.begun("cancelled")
    coordinator.cancel("cancelled", why="enough")
    job = coordinator.wait("cancelled", 60)
    coordinator.undrain("one@test")
    assert (job.state, job.node) == ("cancelled", other.name)
    assert "Traceback" not in other.log.read_text()
