"""The steps of a rollback: one that nobody can run does not hold its lane for ever."""

from tests.harness.hand_node import Puppet

NOWHERE = {"task": "shop.other", "options": {"queue": "nowhere"}}


def to_be_rolled_back(node: Puppet, **options: object) -> None:
    """The job `j` has failed, and no node serves the queue of its rollback; `next` stands behind it."""
    node.submit("a", job_id="j", rollback=NOWHERE, max_lifetime=3600, **options)
    node.submit("a", job_id="next")
    assert node.finish(node.must_take(), "failed").state == "rolling_back"
    assert node.take() is None


def test_a_rollback_that_nobody_can_run_is_a_double_fault_after_its_lifetime(node: Puppet) -> None:
    to_be_rolled_back(node)
    client, expiry = node.store.client, node.store.key("expiry")
    seconds, _ = client.time()
    assert 3500 < (client.zscore(expiry, "j") or 0) / 1000 - seconds < 3700
    node.sweep()
    assert node.lanes.job("j").state == "rolling_back"
    client.zadd(expiry, {"j": 1})
    node.sweep()
    job = node.lanes.job("j")
    assert (job.state, job.rollback, (job.fault or {})["message"]) == ("double_fault", "failed", "max_lifetime is over")
    assert node.lanes.counts()["faults"] == 1
    assert node.order() == ["next"]


def test_a_rollback_that_waits_for_room_only_waits_on(node: Puppet) -> None:
    node.submit("a", job_id="j", rollback={"task": "shop.other"})
    node.finish(node.must_take(), "failed")
    node.store.client.zadd(node.store.key("expiry"), {"j": 1})
    node.sweep()
    assert node.lanes.job("j").state == "rolling_back"
    assert (node.store.client.zscore(node.store.key("expiry"), "j") or 0) > 1
    assert node.finish(node.must_take()).state == "rolled_back"


def test_a_cancel_ends_a_rollback_that_has_not_begun_as_a_double_fault(node: Puppet) -> None:
    to_be_rolled_back(node, on_failure="hold")
    for _ in range(2):
        assert node.lanes.cancel("j", why="nobody can", by="me") == "double_fault"
    job = node.lanes.job("j")
    assert (job.rollback, (job.fault or {})["message"]) == ("failed", "nobody can")
    assert node.order() == ["next"]


def test_a_cancel_leaves_a_rollback_alone_that_has_begun(node: Puppet) -> None:
    node.submit("a", job_id="j", rollback={"task": "shop.other"})
    node.finish(node.must_take(), "failed")
    undo = node.must_take()
    assert node.lanes.cancel("j") == "rolling_back"
    assert node.finish(undo).state == "rolled_back"


def test_a_cancel_asked_again_does_not_end_the_rollback_that_it_caused(node: Puppet) -> None:
    node.submit("a", job_id="j", rollback={"task": "shop.other"}, max_attempts=2)
    node.finish(node.must_take(), "raised", delay=3_600_000)
    for _ in range(2):
        assert node.lanes.cancel("j") == "rolling_back"
    assert node.finish(node.must_take()).state == "cancelled"
    assert node.lanes.job("j").rollback == "done"
