"""A process that stopped submitting, and a client that was closed."""

import pytest

from coordinator import Coordinator, ShuttingDown
from tests.harness.hand_node import Puppet
from tests.harness.waiting import wait_until


def test_once_it_stopped_a_submit_is_refused_and_nothing_is_written(coordinator: Coordinator) -> None:
    node = Puppet(coordinator.store)
    signature = {"task": "shop.work"}
    coordinator.submit("a", signature, job_id="before", if_unknown="wait")
    coordinator.stop_submitting()
    with pytest.raises(ShuttingDown):
        coordinator.submit("a", signature, job_id="after")
    with pytest.raises(ShuttingDown):
        coordinator.submit_many([("a", signature)])
    assert coordinator.counts()["created"] == 1
    assert coordinator.lane("a").jobs == ("before",)
    assert node.lanes.cancel("before") == "cancelled"


def test_close_ends_the_connections_and_the_next_call_opens_others(coordinator: Coordinator) -> None:
    plain = Coordinator(url=coordinator.settings.url, prefix=coordinator.settings.prefix)
    before = coordinator.store.read("CLIENT", "LIST").count(b"\n")
    with plain:
        assert plain.counts()["created"] == 0
        assert coordinator.store.read("CLIENT", "LIST").count(b"\n") > before
    wait_until(lambda: coordinator.store.read("CLIENT", "LIST").count(b"\n") == before)
    assert plain.lanes() == []
    plain.close()
