"""A node is cut off or half connected: what it held goes on once, and what it says late is refused."""

from collections.abc import Iterator

import pytest

from tests.fleet.shared.test_node_loss import OTHER, SHORT, TTL, begun, on_its_own, pass_server_time
from tests.harness.fleet import Fleet, Worker, server_seconds
from tests.harness.proxy import Proxy
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

NODE = Node("depot", 2, settings=SHORT)


@pytest.fixture
def network(fleet: Fleet) -> Iterator[Proxy]:
    """Between one node and both its broker and the coordinator's Redis."""
    with Proxy(fleet.server.port) as between:
        yield between


def far_worker(fleet: Fleet, network: Proxy) -> Worker:
    """A node with the label `far`, whose tasks' own notes take another way. The shared one is drained."""
    urls = {"COORDINATOR_URL": network.url(0), "TEST_BROKER": network.url(1), "TEST_BACKEND": network.url(2)}
    return on_its_own(fleet, "far", COORDINATOR_LABELS="far", **urls)


def test_a_node_that_was_cut_off_is_refused_what_went_on_elsewhere_and_keeps_what_did_not(
    fleet: Fleet, network: Proxy
) -> None:
    """All that it sent while it was cut off arrives late, as over a network that is there again."""
    far = far_worker(fleet, network)
    depot, coordinator = fleet.depot, fleet.depot.coordinator
    shared = coordinator.submit("shared", depot.held.s("shared")).id
    own = coordinator.submit("own", depot.held.s("own"), needs=["far"]).id
    fleet.begun("shared", "own")
    coordinator.undrain(OTHER)
    network.hold()
    begun(fleet, "shared", 2)
    wait_until(lambda: fleet.nodes() == [OTHER], what=fleet.logs)
    pass_server_time(fleet, 2 * TTL)
    assert coordinator.job(own).state == "ready"
    network.heal()
    wait_until(lambda: sorted(fleet.nodes()) == [far.name, OTHER], what=fleet.logs)
    fleet.go("shared")
    wait_until(lambda: "Redis refused the outcome: lost" in far.log.read_text(), what=fleet.logs)
    assert coordinator.job(shared).state == "running"
    fleet.go("shared")
    job = coordinator.wait(shared, 60)
    assert (job.state, job.node, job.attempt, job.losses) == ("succeeded", OTHER, 2, 1)
    fleet.go("own")
    job = coordinator.wait(own, 60)
    assert (job.state, job.node, job.attempt, job.losses) == ("succeeded", far.name, 1, 0)
    assert len(fleet.stamps("own", "begin")) == 1
    again = coordinator.submit("again", depot.work.s("again"), needs=["far"]).id
    assert coordinator.wait(again, 60).node == far.name


def test_a_node_with_half_open_connections_trusts_no_lease_and_is_back_in_time(fleet: Fleet, network: Proxy) -> None:
    far = far_worker(fleet, network)
    depot, coordinator = fleet.depot, fleet.depot.coordinator
    job_id = coordinator.submit("ledger", depot.asks.s("job")).id
    fleet.begun("job")
    coordinator.undrain(OTHER)
    network.swallow()
    begun(fleet, "job", 2)
    fleet.go("job")
    wait_until(lambda: fleet.stamps("job", "unknown"), what=fleet.logs)
    fleet.go("job")
    assert coordinator.wait(job_id, 60).result == "trusted"
    network.heal()
    healed = server_seconds(fleet)
    back = coordinator.submit("back", depot.work.s("back"), needs=["far"]).id
    assert coordinator.wait(back, 60).node == far.name
    assert server_seconds(fleet) - healed < 50
    wait_until(lambda: "Redis refused the outcome: lost" in far.log.read_text(), what=fleet.logs)
    job = coordinator.job(job_id)
    assert (job.node, job.attempt, job.losses) == (OTHER, 2, 1)
