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


def test_a_ready_job_is_replaced_at_once(node: Puppet) -> None:
    first = node.submit("a")
    second = node.submit("a", when_busy="replace")
    assert node.lanes.job(first.id).state == "cancelled"
    assert second.outcome == "started"
    assert node.must_take().id == second.id


def test_of_jobs_that_wait_to_replace_one_the_latest_is_left(node: Puppet) -> None:
    node.submit("a")
    taken = node.must_take()
    waiting = [node.submit("a", when_busy="replace").id for _ in range(3)]
    assert [node.lanes.job(job_id).state for job_id in waiting] == ["cancelled", "cancelled", "waiting"]
    node.finish(taken)
    assert node.must_take().id == waiting[-1]


def test_jobs_that_stand_in_line_keep_their_places_before_it(node: Puppet) -> None:
    node.submit("a")
    taken = node.must_take()
    queued = node.submit("a").id
    last = node.submit("a", when_busy="replace").id
    node.finish(taken)
    assert node.order() == [queued, last]


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


def test_in_an_idle_lane_it_simply_starts_and_a_repeated_submit_replaces_nothing(node: Puppet) -> None:
    first = node.submit("a", when_busy="replace", job_id="j1")
    assert first.outcome == "started"
    taken = node.must_take()
    assert node.submit("a", when_busy="replace", job_id="j1").outcome == "duplicate"
    node.finish(taken)
    assert node.lanes.job("j1").state == "succeeded"


def test_a_job_of_several_keys_replaces_what_is_at_work_in_each_of_them(node: Puppet) -> None:
    ids = [node.submit(key).id for key in ("a", "b")]
    both = node.submit(["a", "b"], when_busy="replace")
    assert {node.lanes.job(job_id).state for job_id in ids} == {"cancelled"}
    assert node.must_take().id == both.id


def test_a_lock_in_plain_code_is_waited_for(coordinator: Coordinator) -> None:
    with coordinator.lock("a") as lease:
        made = coordinator.submit("a", {"task": "t"}, when_busy="replace", if_unknown="wait")
        assert made.outcome == "queued"
        lease.check()
    assert coordinator.job(made.id).state == "ready"


def test_it_looks_at_the_lane_now(coordinator: Coordinator) -> None:
    with pytest.raises(InvalidJob, match="looks at the lane now"):
        coordinator.submit("a", {"task": "t", "options": {"countdown": 5}}, when_busy="replace")
