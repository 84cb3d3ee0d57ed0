"""Code that would wait for itself, in `wait` or for a lock, gets an error with the ring at once."""

import threading
from collections.abc import Callable, Iterator

import pytest

from coordinator import Coordinator, WaitTimeout, WouldDeadlock
from coordinator.core.jobs.current import CurrentJob, working
from tests.coordinator.core.runner.test_rings import park, start
from tests.harness.hand_node import Puppet, Taken
from tests.harness.waiting import wait_until


@pytest.fixture
def inside(node: Puppet) -> Iterator[Callable[[Taken, str], None]]:
    """From here the test's code is that of this job."""
    marks = []

    def enter(taken: Taken, key: str) -> None:
        job = CurrentJob(taken.id, (key,), taken.token, taken.fence, 1, node.lanes)
        marks.append(working.set(job))

    yield enter
    for mark in reversed(marks):
        working.reset(mark)


def test_code_that_waits_for_a_job_behind_its_own_is_refused_at_once(
    node: Puppet, inside: Callable[[Taken, str], None]
) -> None:
    inside(a := start(node, "A", "k"), "k")
    node.submit("k", job_id="C")
    with pytest.raises(WouldDeadlock, match="A waits in its code for C; C waits behind A in lane 'k'"):
        node.lanes.wait("C", 60)
    with pytest.raises(WaitTimeout):
        node.lanes.wait("C", 0)
    node.finish(a)
    assert node.order() == ["C"]


def test_a_wait_in_code_is_seen_by_a_job_that_would_close_the_ring_and_is_over_with_its_end(
    node: Puppet, inside: Callable[[Taken, str], None]
) -> None:
    a, d = start(node, "A", "a"), start(node, "D", "d")
    node.submit("d", job_id="C")
    node.submit("a", job_id="E")
    inside(a, "a")
    seen = []

    def look() -> None:
        wait_until(lambda: node.store.read("HEXISTS", node.store.key("job", "A"), "awaits"))
        seen.append(park(node, d, "E"))
        node.finish(d)

    thread = threading.Thread(target=look)
    thread.start()
    with pytest.raises(WaitTimeout):
        node.lanes.wait("C", 2.0)
    thread.join()
    ring = "D waits for its sub-result E; E waits behind A in lane 'a'; A waits in its code for C; C waits behind D"
    assert [verdict for verdict, _ in seen] == ["deadlock"]
    assert seen[0][1].startswith(ring)
    assert not node.store.read("HEXISTS", node.store.key("job", "A"), "awaits")
    node.finish(a)
    node.order()


def test_a_ring_that_closes_while_code_waits_is_told_to_it(node: Puppet, inside: Callable[[Taken, str], None]) -> None:
    a, h = start(node, "A", "a"), start(node, "H", "x")
    node.submit("x", job_id="E")
    node.submit(["x", "a"], job_id="C")
    inside(a, "a")

    def move() -> None:
        wait_until(lambda: node.store.read("HEXISTS", node.store.key("job", "A"), "awaits"))
        node.lanes.move("C", to="front")

    thread = threading.Thread(target=move)
    thread.start()
    with pytest.raises(WouldDeadlock, match="A waits in its code for E; E waits behind C in lane 'x'; C waits behind"):
        node.lanes.wait("E", 60)
    thread.join()
    node.finish(h)
    node.finish(a)
    assert sorted(node.order()) == ["C", "E"]


def test_crossed_locks_in_plain_code_are_refused_where_the_ring_closes(coordinator: Coordinator) -> None:
    outcomes: list[str] = []
    with coordinator.lock("a") as one:

        def cross() -> None:
            with coordinator.lock("b") as two:
                crossed.set()
                wait_until(lambda: coordinator.lane("b").length == 2)
                with pytest.raises(WouldDeadlock) as refused, coordinator.lock("a", blocking_timeout=60):
                    pytest.fail("two hold it")
                outcomes.extend([str(refused.value), one.job_id, two.job_id])

        crossed = threading.Event()
        thread = threading.Thread(target=cross)
        thread.start()
        assert crossed.wait(60)
        with coordinator.lock("b", blocking_timeout=60):
            pass
        thread.join()
    assert coordinator.lane("a").length == 0
    message, first, second = outcomes
    assert f"waits behind {first} in lane 'a'" in message
    assert f"waits behind {second} in lane 'b'" in message


def test_a_lock_that_is_held_already_is_not_waited_for_by_its_own_thread(coordinator: Coordinator) -> None:
    with coordinator.lock("a"), pytest.raises(WouldDeadlock), coordinator.lock("a", blocking_timeout=60):
        pytest.fail("two hold it")
