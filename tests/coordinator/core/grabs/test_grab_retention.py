"""The record of an instance outlives all else that is dropped: jobs, sweeps, a full Redis. It ends with `keep`."""

import pytest

from coordinator import Coordinator, StoreRefused
from coordinator.core.jobs.instances import lane_of
from coordinator.core.jobs.options import KEEP
from tests.harness.hand_node import Puppet
from tests.harness.waiting import wait_until


def test_an_instance_is_kept_when_its_job_is_dropped(node: Puppet, coordinator: Coordinator) -> None:
    few = {"keep_most": 1, "keep_success": 3600}
    for number in range(4):
        node.submit("report", job_id=f"j{number}", instance=number, settings=few)
    assert len(node.order()) == 4
    client, store = coordinator.store._client, coordinator.store
    assert sum(client.exists(store.key("job", f"j{number}")) for number in range(4)) == 1
    node.sweep()
    for number in range(4):
        lost = node.submit("report", instance=number)
        assert (lost.outcome, lost.grab.state, lost.id, lost.grab.result) == (
            "lost",
            "complete",
            f"j{number}",
            "detail",
        )
        assert client.ttl(store.key("grab", lane_of("report", str(number)))) > KEEP - 60
    assert len(coordinator.grabs("report")) == 4
    assert node.order() == []


def test_each_instance_has_a_keep_of_its_own_and_a_short_one_takes_no_other_with_it(
    node: Puppet, coordinator: Coordinator
) -> None:
    store = coordinator.store

    def lists_are_kept() -> bool:
        return all(store._client.ttl(name) > KEEP - 60 for name in (store.key("grabs"), store.key("grabs", "report")))

    coordinator.grab("report", "short too", "one", ttl=0.2, keep=0.3).complete()
    coordinator.grab("report", "long", "one").complete()
    assert lists_are_kept()
    node.submit("report", job_id="short", instance="short", keep_instance=0.3)
    node.order()
    wait_until(lambda: [one.instance for one in coordinator.grabs("report")] == ["long"])
    assert [one.instance for one in coordinator.grabs()] == ["long"]
    assert lists_are_kept()
    node.submit("report", job_id="again", instance="short")
    assert node.order() == ["again"]
    assert coordinator.grab("report", "long", "two").state == "complete"


def test_a_record_does_not_end_before_its_job_however_long_that_waits(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("report", job_id="j", instance="a", keep_instance=0.2)
    store = coordinator.store
    assert store._client.ttl(store.key("grab", lane_of("report", "a"))) > 365 * 86400
    node.order()
    assert 0 <= store._client.pttl(store.key("grab", lane_of("report", "a"))) <= 200


def test_in_a_full_redis_what_is_held_can_be_completed_and_nothing_is_forgotten(
    node: Puppet, coordinator: Coordinator
) -> None:
    grab = coordinator.grab("report", "process", "one")
    node.submit("report", job_id="j", instance="job")
    taken, client = node.must_take(), coordinator.store._client
    client.config_set("maxmemory", 1)
    try:
        node.finish(taken)
        grab.complete("done")
        node.sweep()
        with pytest.raises(StoreRefused):
            coordinator.grab("report", "another", "one")
        with pytest.raises(StoreRefused):
            node.submit("report", instance="another")
        assert {one.instance: (one.state, one.value) for one in coordinator.grabs("report")} == {
            "process": ("complete", "done"), "job": ("complete", "detail"),
        }  # fmt: skip
    finally:
        client.config_set("maxmemory", 0)
    assert node.submit("report", instance="process").outcome == "lost"
    assert coordinator.grab("report", "job", "two").state == "complete"
