"""`when_busy="replace"`: a job takes the place of the one at work."""

import pytest

from coordinator import Coordinator, InvalidJob
from tests.harness.hand_node import Puppet


def test_the_job_at_work_is_stopped_and_then_the_one_that_replaces_it_runs(node: Puppet) -> None:
    first = node.submit("a")
    taken = node.must_take()
    second = node.submit("a", when_busy="replace")
    assert (second.outcome, second.position) == ("queued", 1)
    assert node.take() is None, "it waits until the process of the other was stopped"
    node.finish(taken)
    found = node.lanes.job(first.id)
    assert found.state == "cancelled"
    assert found.error is not None
    assert found.error["message"] == f"replaced by {second.id}"
    assert node.must_take().id == second.id


@pytest.mark.parametrize("head", ["ready", "retrying", "held", "parked"])
def test_those_that_only_wait_behind_a_head_without_a_process_keep_their_places(node: Puppet, head: str) -> None:
    first = node.submit("a", on_failure="hold" if head == "held" else "release", max_attempts=2)
    outcomes = {"retrying": "raised", "held": "failed", "parked": "parked"}
    if head in outcomes:
        node.finish(node.must_take(), outcomes[head], delay=60_000)
    assert node.lanes.job(first.id).state == head
    queued = [node.submit("a").id for _ in range(3)]
    made = node.submit("a", when_busy="replace").id
    assert node.lanes.job(first.id).state == "cancelled"
    assert [node.lanes.job(name).state for name in (*queued, made)] == ["ready", "waiting", "waiting", "waiting"]


def test_one_that_waits_to_replace_is_replaced_however_many_stand_before_it(node: Puppet) -> None:
    node.submit("a")
    node.must_take()
    for _ in range(120):
        node.submit("a")
    former = node.submit("a", when_busy="replace")
    node.submit("a", when_busy="replace")
    assert node.lanes.job(former.id).state == "cancelled"


def test_a_lock_in_plain_code_is_waited_for(coordinator: Coordinator) -> None:
    with coordinator.lock("a") as lease:
        made = coordinator.submit("a", {"task": "t"}, when_busy="replace", if_unknown="wait")
        assert made.outcome == "queued"
        lease.check()
    assert coordinator.job(made.id).state == "ready"


def test_it_looks_at_the_lane_now(coordinator: Coordinator) -> None:
    with pytest.raises(InvalidJob, match="depends on the lane now"):
        coordinator.submit("a", {"task": "t", "options": {"countdown": 5}}, when_busy="replace")
