"""An operator's hand: a lane that is released or paused. Pauses and retries of jobs: tests/proof/test_model.py."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from coordinator import Coordinator, LeaseLost
from tests.harness.hand_node import Puppet
from tests.harness.waiting import wait_until


def test_a_lane_is_released_from_its_holder_and_the_next_goes_on(node: Puppet) -> None:
    node.submit("a", job_id="holder", max_attempts=2)
    old = node.must_take()
    node.submit("a", job_id="next")
    before = node.store._client.time()
    assert node.lanes.release("a", why="stuck since noon", by="anna") == "holder"
    assert node.lanes.counts()["ready"] == 1, "the next one alone"
    job = node.lanes.job("holder")
    assert job.state == "cancelled"
    assert job.error
    assert (job.error["type"], job.error["message"], job.error["by"]) == ("Released", "stuck since noon", "anna")
    assert job.ended
    assert job.ended >= datetime.fromtimestamp(before[0], UTC)
    new = node.must_take()
    assert (new.id, new.fence > old.fence) == ("next", True)
    assert not node.lanes.holds("holder", old.token)
    assert not node.renew(old)[0]
    node.finish(old)
    assert node.lanes.job("holder").state == "cancelled"
    assert node.lose(old) == ""
    node.finish(new)
    node.sweep()
    assert node.order() == [], "it does not come back"


def test_who_releases_twice_takes_the_lane_from_one_job_only(node: Puppet) -> None:
    node.submit("a", job_id="first")
    node.submit("a", job_id="second")
    first = node.must_take()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: node.lanes.release("a", why="stuck"), range(4)))
    assert sorted(answers, key=str) == [None, None, None, "first"]
    second = node.must_take()
    assert second.id == "second"
    assert node.lanes.release("a", why="again", holder="first") is None, "it meant another one"
    assert node.finish(second).state == "succeeded"
    assert node.finish(first).state == "cancelled"


def test_a_lock_in_plain_code_is_released_its_holder_is_told_and_its_waiter_goes_on(coordinator: Coordinator) -> None:
    held, over = threading.Event(), threading.Event()
    told: list[object] = []

    def hold() -> None:
        try:
            with coordinator.lock("door") as lease:
                held.set()
                over.wait(20)
                told.append(lease.fence)
                lease.check()
        except LeaseLost as error:
            told.append(type(error))

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(hold)
        assert held.wait(60)
        assert coordinator.release("door", why="stuck")
        with coordinator.lock("door", blocking_timeout=60) as lease:
            over.set()
            first.result(60)
            lease.check()
            assert told == [told[0], LeaseLost]
            assert lease.fence > int(str(told[0]))


def test_a_waiter_for_a_lock_waits_for_the_paused_lane(coordinator: Coordinator) -> None:
    coordinator.pause("door", why="maintenance")

    def pass_through() -> int:
        with coordinator.lock("door", blocking_timeout=60) as lease:
            lease.check()
            return lease.fence

    with ThreadPoolExecutor(1) as pool:
        fence = pool.submit(pass_through)
        wait_until(lambda: coordinator.lane("door").length == 1)
        assert (coordinator.lane("door").state, fence.done()) == ("waiting", False)
        coordinator.resume("door")
        assert fence.result(60) > 0
