"""Ordinary tasks of a node that dies: what it had not acknowledged, and what lay in its own queue, runs elsewhere."""

import signal
from typing import Any

import pytest

from coordinator.broker.doorbells import GONE, queue_of
from tests.harness.fleet import Fleet, Worker, kill_all, server_seconds
from tests.harness.waiting import wait_until

SHORT: dict[str, Any] = {"lock_ttl": 2, "node_ttl": 1, "sweep": 0.1, "heartbeat": 0.3}
LASTS = 1 + 3  # seconds that a hand outlasts its node's last heartbeat


def begun(fleet: Fleet) -> list[str]:
    return sorted(stamp.name for stamp in fleet.stamps(what="begin"))


def send(fleet: Fleet, *names: str) -> None:
    for name in names:
        fleet.depot.late.apply_async([name], ignore_result=True)
    fleet.begun(*names)


def straight_to(worker: Worker) -> dict[str, Any]:
    """Options of a task that goes to the node's own queue, as it is."""
    return {"queue": queue_of(worker.name, GONE), "ignore_result": True}


def end(fleet: Fleet, *names: str) -> None:
    """The latest run of each may end; none is left unacknowledged."""
    for name in names:
        fleet.go(name)
    wait_until(lambda: fleet.messages() == 0, 10, fleet.logs)


@pytest.mark.broker
def test_what_a_killed_node_had_not_acknowledged_runs_once_elsewhere_within_seconds(fleet: Fleet) -> None:
    fleet.configure(**SHORT)
    doomed = fleet.worker("doomed", 2, app="depot")
    send(fleet, "a", "b")
    fleet.depot.coordinator.doorbells.ring(doomed.name, "void")
    fleet.depot.work.apply_async(["own"], **straight_to(doomed))
    for name in ("x", "y"):
        fleet.worker(name, 2, app="depot")
    wait_until(lambda: len(fleet.nodes()) == 3)
    kill_all(doomed)
    killed = server_seconds(fleet)
    wait_until(lambda: begun(fleet) == ["a", "a", "b", "b", "own"], LASTS + 10, fleet.logs)
    assert max(stamp.at for stamp in fleet.stamps(what="begin")) / 1e6 - killed < LASTS + 5
    end(fleet, "a", "b")
    assert begun(fleet) == ["a", "a", "b", "b", "own"]
    if fleet.rabbitmq:
        return
    with fleet.server.client(1) as broker:
        assert broker.keys(f"{fleet.prefix}.coordinator.hand:*") == []
        assert broker.zcard(f"{fleet.prefix}.coordinator.hands:depot") == 2


def test_a_task_of_a_node_that_lives_is_never_put_back_whatever_becomes_of_its_warden(fleet: Fleet) -> None:
    fleet.configure(**SHORT | {"node_ttl": 3})
    worker = fleet.worker("one", 2, app="depot")
    fleet.worker("other", 2, app="depot")
    send(fleet, "a")
    began = server_seconds(fleet)
    wardens = set()
    while server_seconds(fleet) - began < LASTS + 2 + 3:
        wait_until(lambda: [one for one in worker.wardens() if one.pid not in wardens], 10, fleet.logs)
        warden = worker.warden()
        wait_until(lambda: worker.name in fleet.nodes(), 20, fleet.logs)
        wardens.add(warden.pid)
        warden.kill()
    assert begun(fleet) == ["a"]
    end(fleet, "a")
    assert begun(fleet) == ["a"]


def test_a_lone_node_that_starts_again_under_its_name_gets_back_what_it_had(fleet: Fleet) -> None:
    fleet.configure(**SHORT)
    worker = fleet.worker("one", 1, app="depot")
    send(fleet, "a")
    fleet.depot.work.apply_async(["own"], **straight_to(worker))
    kill_all(worker)
    wait_until(lambda: fleet.nodes() == [], 10)
    fleet.worker("one", 1, app="depot")
    wait_until(lambda: begun(fleet) == ["a", "a", "own"], 2 * LASTS + 10, fleet.logs)
    end(fleet, "a")


def test_a_node_that_ends_in_good_order_leaves_nothing_in_hand(fleet: Fleet) -> None:
    fleet.configure(**SHORT)
    first = fleet.worker("first", 1, app="depot")
    send(fleet, "a")
    first.kill(signal.SIGTERM)
    fleet.worker("second", 1, app="depot")
    end(fleet, "a")
    first.process.wait(20)
    with fleet.server.client(1) as broker:
        wait_until(lambda: broker.zcard(f"{fleet.prefix}.coordinator.hands:depot") == 1, LASTS + 10, fleet.logs)
    assert begun(fleet) == ["a"]
