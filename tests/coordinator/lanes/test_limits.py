"""Lanes of which another number than one job may run at once, beside what tests/proof/test_model.py proves of them."""

import pytest

from coordinator import Coordinator, InvalidJob, LaneFull, Locked
from tests.harness.hand_node import Puppet
from tests.harness.waiting import wait_until


def test_at_a_limit_of_zero_nothing_starts_and_why_says_who_wanted_that(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.set_limit("a", 0, why="maintenance", by="ann")
    assert node.submit("a", job_id="j").outcome == "queued"
    assert node.take() is None
    (closed,) = coordinator.why("j").causes
    assert (closed.code, closed.facts["by"], closed.facts["why"]) == ("waiting.closed", "ann", "maintenance")
    assert (coordinator.lane("a").limited or {})["by"] == "ann"
    with pytest.raises(Locked):
        coordinator.lock("a").__enter__()
    coordinator.set_limit("a", 1)
    assert node.order() == ["j"]


def test_who_renews_late_gets_another_slot_where_its_own_was_given_away(node: Puppet) -> None:
    client = node.store._client
    node.lanes.set_limit("a", 2)
    node.submit("a", job_id="j0")
    slow = node.must_take()
    client.delete(node.store.key("lock", "a"))  # it lapsed
    node.submit("a", job_id="j1")
    other = node.must_take()
    assert node.renew(slow) == [True]
    assert (node.locked_by("a"), node.locked_by("a", "2")) == (other.token, slow.token)
    node.finish(slow)
    node.finish(other)
    assert client.exists(node.store.key("lock", "a"), node.store.key("slot", "2", "a")) == 0


@pytest.mark.parametrize("alone", [(True, False), (False, True)])
def test_a_skip_would_wait_beside_one_that_runs_alone(node: Puppet, alone: tuple[bool, bool]) -> None:
    node.lanes.set_limit("a", 3)
    outcomes = [node.submit("a", when_busy="skip", exclusive=exclusive).outcome for exclusive in alone]
    assert outcomes == ["started", "skipped"]


def test_a_lane_shows_all_that_hold_it_and_is_released_from_the_one_that_was_started_first(node: Puppet) -> None:
    node.lanes.set_limit("a", 3)
    for name in ("z", "y", "x"):
        node.submit("a", job_id=name, max_attempts=2)
    node.finish(node.must_take(), "raised", delay=60_000)
    began = node.store.now()
    wait_until(lambda: node.store.now() > began)
    node.must_take()
    lane = node.lanes.lane("a")
    assert (lane.jobs, lane.state, lane.holder) == (("z", "y", "x"), "retrying", "z")
    assert [(one.job_id, one.node, one.since) for one in lane.holders] == [
        ("z", None, node.lanes.job("z").taken), ("y", "one", node.lanes.job("y").taken),
    ]  # fmt: skip
    assert node.lanes.lanes()[0].holders == lane.holders
    assert [node.lanes.release("a", why="stuck") for _ in range(3)] == ["z", "y", None]


def test_locks_in_plain_code_share_a_lane_with_a_limit(coordinator: Coordinator) -> None:
    coordinator.set_limit("licence", 2)
    with coordinator.lock("licence"), coordinator.lock("licence"):
        with pytest.raises(Locked), coordinator.lock("licence"):
            pass
        before = coordinator.lane("licence")
    assert before.length == 2
    assert coordinator.lane("licence").length == 0
    coordinator.set_limit("licence", 1)


def test_a_submit_is_refused_when_too_many_wait_and_nothing_is_written(node: Puppet) -> None:
    node.submit("a", job_id="j0")
    node.must_take()
    for i in range(2):
        assert node.submit("a", max_waiting=2, job_id=f"w{i}").outcome == "queued"
    before = sorted(node.store._client.scan_iter(f"{node.store.prefix}*"))
    with pytest.raises(LaneFull, match="2 jobs wait in lane 'a' already") as refused:
        node.submit(["b", "a"], max_waiting=2, job_id="late")
    assert (refused.value.key, refused.value.waiting, refused.value.job_id) == ("a", 2, "late")
    assert sorted(node.store._client.scan_iter(f"{node.store.prefix}*")) == before
    assert node.submit("a", max_waiting=2, job_id="w0").outcome == "duplicate"
    assert node.submit("a", max_waiting=3).outcome == "queued"


@pytest.mark.parametrize("limit", [-1, 1001, True, "2", 1.5])
def test_limits_that_make_no_sense_are_refused(coordinator: Coordinator, limit: int) -> None:
    with pytest.raises(InvalidJob, match="limit is a whole number from 0"):
        coordinator.set_limit("a", limit)
    assert coordinator.lanes() == []
