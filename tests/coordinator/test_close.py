"""A client that was closed submits nothing more."""

import pytest

from coordinator import Coordinator, ShuttingDown
from tests.harness.hand_node import Puppet


def test_after_close_a_submit_is_refused_and_nothing_is_written(coordinator: Coordinator) -> None:
    node = Puppet(coordinator.store)
    signature = {"task": "shop.work"}
    coordinator.submit("a", signature, job_id="before", unknown="wait")
    coordinator.close()
    with pytest.raises(ShuttingDown):
        coordinator.submit("a", signature, job_id="after")
    with pytest.raises(ShuttingDown):
        coordinator.submit_many([("a", signature)])
    assert coordinator.counts()["created"] == 1
    assert coordinator.lane("a").jobs == ("before",)
    assert node.lanes.cancel("before") == "cancelled"
