"""What is promised when the supervisor of a node hangs, stands still or is killed: real workers, real signals."""

import re
import signal
from itertools import cycle
from pathlib import Path

import psutil
import pytest

from coordinator.core.author import act_of
from tests.fleet.shared.test_losing_a_worker import OTHER, SHORT, on_its_own, server_us
from tests.harness.fleet import Fleet
from tests.harness.standing import Node
from tests.harness.stopping import stop
from tests.harness.waiting import wait_until

NODE = Node("shop", 2, settings=SHORT)


def catches(process: psutil.Process, number: int) -> bool:
    found = re.search(r"SigCgt:\t(\w+)", Path(f"/proc/{process.pid}/status").read_text())
    return bool(found and int(found[1], 16) >> (number - 1) & 1)


def test_a_supervisor_that_hangs_is_replaced_and_the_job_at_work_is_not_lost(fleet: Fleet) -> None:
    worker = on_its_own(fleet, "hangs", COORDINATOR_TIMEOUT="0.25", COORDINATOR_LOCK_TTL="15", COORDINATOR_NODE_TTL="6")
    fleet.coordinator.submit("ledger", fleet.shop.work.s("long", 12), job_id="long", max_losses=0)
    fleet.begun("long")
    hung, maintenance = worker.supervisor(), worker.maintenance()
    stop(hung)
    gone, _ = psutil.wait_procs([hung, maintenance], 60)
    assert len(gone) == 2
    late = fleet.coordinator.submit("other", fleet.shop.fail.s("late"), max_attempts=2, retry_delay=0.1)
    assert fleet.coordinator.wait("long", 60).state == "succeeded"
    assert fleet.coordinator.wait(late.id, 60).attempt == 2
    assert "the supervisor was silent" in fleet.logs()


@pytest.mark.parametrize("pool", ["prefork", "solo"])
def test_supervisor_and_maintenance_outlive_signals_to_their_group_and_are_replaced_while_the_worker_ends(
    fleet: Fleet, pool: str
) -> None:
    worker = fleet.worker("ends", 1, pool=pool, COORDINATOR_LOCK_TTL="6")
    fleet.coordinator.drain(OTHER, why="only the other one is to work")
    fleet.coordinator.submit("ledger", fleet.shop.work.s("long", 12), job_id="long", max_losses=0)
    fleet.begun("long")
    fleet.coordinator.undrain(OTHER)
    beside = [worker.supervisor(), worker.maintenance()]
    wait_until(lambda: all(catches(process, signal.SIGTERM) for process in beside))  # they have begun
    worker.kill(signal.SIGTERM)
    for process in beside:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            process.send_signal(number)
    wait_until(lambda: "Warm shutdown" in worker.log.read_text(), what=fleet.logs)
    assert psutil.wait_procs(beside, 0.5)[0] == []
    beside[0].kill()
    wait_until(lambda: [one for one in worker.supervisors() if one != beside[0]], what=fleet.logs)
    assert fleet.coordinator.wait("long", 60).state == "succeeded"
    worker.process.wait(60)
    wait_until(lambda: fleet.nodes() == [OTHER])


@pytest.mark.parametrize("who", ["supervisor", "all"])
def test_a_supervisor_that_stood_still_loses_no_living_job(fleet: Fleet, who: str) -> None:
    """For longer than a lease. Alone: a runner claims the next job meanwhile. All: it goes on before the others."""
    (worker,) = fleet.workers
    supervisor = worker.supervisor()
    others = [psutil.Process(worker.pid), *worker.children()] if who == "all" else []
    fleet.coordinator.submit("ledger", fleet.shop.work.s("before", 1))
    fleet.coordinator.submit("ledger", fleet.shop.work.s("long", 6), job_id="long", max_losses=0)
    fleet.begun("before")
    if who == "supervisor":
        stop(supervisor)
    fleet.begun("long")
    stop(*others, supervisor)
    stopped = server_us(fleet)
    acts, step = cycle(["1", "0"]), fleet.coordinator.store.step  # somebody takes steps: the leases' time goes on
    wait_until(lambda: step("node_drain", "other", next(acts), act_of()) and server_us(fleet) - stopped > 4e6)
    supervisor.resume()
    before = server_us(fleet)
    wait_until(lambda: server_us(fleet) - before > 1e6)
    for process in others:
        process.resume()
    assert fleet.coordinator.wait("long", 60).state == "succeeded", fleet.logs()
    assert supervisor.is_running()
    assert "its lease ended" not in fleet.logs()
