"""Whose turn it is where a lane is paused, and what a job is once its rollback is over."""

from tests.harness.hand_node import Puppet

UNDO = {"task": "shop.other", "args": [], "kwargs": {}, "options": {}}


def test_who_enters_a_paused_lane_with_a_higher_priority_does_not_overtake_the_one_at_work(node: Puppet) -> None:
    node.submit("a", job_id="at work")
    first = node.must_take()
    node.lanes.pause("a", why="maintenance")
    node.submit("a", job_id="urgent", priority=9)
    assert node.lanes.resume("a")
    assert node.lanes.job("urgent").state == "waiting"
    assert node.take() is None
    node.finish(first)
    assert node.must_take().id == "urgent"


def test_a_paused_lane_starts_nothing_and_goes_on_where_it_was(node: Puppet) -> None:
    node.lanes.pause("a")
    assert not node.lanes.pause("a", why="twice")
    node.submit("a", job_id="one")
    node.submit(["a", "b"], job_id="both")
    lane = node.lanes.lane("a")
    assert (lane.paused, lane.length, lane.jobs, node.take()) == (True, 2, ("one", "both"), None)
    assert node.lanes.resume("a")
    assert not node.lanes.resume("a")
    assert node.finish(node.must_take()).state == "succeeded"
    assert node.finish(node.must_take()).state == "succeeded"
    assert node.store._client.hlen(node.store.key("paused")) == 0


def test_a_job_that_was_ready_when_its_lane_was_paused_waits_again(node: Puppet) -> None:
    node.submit("a", job_id="one")
    node.lanes.pause("a")
    assert (node.lanes.job("one").state, node.take()) == ("waiting", None)
    node.lanes.resume("a")
    assert node.must_take().id == "one"


def test_a_held_job_that_was_rolled_back_is_retried_as_itself(node: Puppet) -> None:
    node.submit("a", job_id="j", rollback=UNDO, on_failure="hold")
    assert node.finish(node.must_take(), "failed").state == "rolling_back"
    assert node.lanes.job("j").state == "rolling_back"
    assert node.lanes.job("j").task == "shop.other"
    assert node.finish(node.must_take(), "succeeded").state == "held"
    job = node.lanes.job("j")
    assert (job.state, job.task, job.rollback) == ("held", "shop.work", "done")
    assert node.lanes.retry("j", why="mended") == "ready"
    assert node.finish(node.must_take(), "succeeded").state == "succeeded"
    assert node.lanes.counts()["succeeded"] == 1


def test_a_job_held_after_a_double_fault_can_be_cancelled(node: Puppet) -> None:
    node.submit("a", job_id="j", rollback=UNDO, on_failure="hold")
    node.finish(node.must_take(), "failed")
    assert node.finish(node.must_take(), "raised").state == "held"
    assert node.lanes.job("j").rollback == "failed"
    assert node.lanes.cancel("j", why="given up") == "cancelled"
    counts = node.lanes.counts()
    assert (counts["cancelled"], counts["held"], counts["rolling_back"], counts["faults"]) == (1, 0, 0, 1)
