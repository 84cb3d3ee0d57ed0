"""Jobs that grab, on real workers: each instance once, whichever node has it, also where a node is killed."""

import threading
from collections import Counter
from typing import Any

from coordinator import Coordinator, Submission
from tests.fleet.test_names import SHORT
from tests.harness.fleet import Fleet, kill_all
from tests.harness.waiting import wait_until


def test_of_many_submitters_one_wins_each_instance_and_a_node_does_it_once(fleet: Fleet) -> None:
    fleet.configure(sweep=0.1)
    for name in ("one", "two"):
        fleet.worker(name, 2)
    coordinator, work = fleet.coordinator, fleet.shop.work
    told: list[Submission] = []

    def compete(client: Coordinator) -> None:
        for number in range(8):
            told.append(client.submit("report", work.s(f"{number}", 0.1), instance=number))

    threads = [threading.Thread(target=compete, args=[coordinator]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(one.grab.won for one in told) == {True: 8, False: 24}
    ends = [coordinator.wait(one.id, 30) for one in told]
    assert {job.state for job in ends} == {"succeeded"}
    assert Counter(stamp.name for stamp in fleet.stamps(what="begin")) == Counter(map(str, range(8)))
    seen = {one.instance: one for one in coordinator.grabs("report")}
    assert len(seen) == 8
    for one in seen.values():
        assert one.winner
        assert (one.state, one.value, one.winner.host) == ("complete", one.instance, "test")
        assert one.winner.node in ("one@test", "two@test")


def test_an_instance_whose_node_is_killed_is_done_by_another_worker_of_its_name(fleet: Fleet) -> None:
    """A passive cluster: the second worker waits until the first is gone, and goes on with its jobs."""
    fleet.configure(**SHORT)
    first = fleet.worker("one")
    second = fleet.worker("one", ready=False)
    wait_until(lambda: "this one takes no work" in second.log.read_text(), 20, fleet.logs)
    coordinator, toil = fleet.coordinator, fleet.shop.toil
    mine = coordinator.submit("report", toil.s("job", 100), instance="a")
    fleet.begun("job")
    (before,) = coordinator.grabs("report")
    assert before.winner
    assert before.winner.pid in {child.pid for child in first.children()}
    lost: Any = coordinator.grab("report", "a", "a process")
    kill_all(first)
    first.process.wait()
    (after,) = coordinator.grabs("report")
    assert after.state == "running", "its job goes on: nobody else takes it over"
    assert coordinator.wait(mine.id, 30).result in {child.pid for child in second.children()}
    assert (lost.wait(10), lost.won) == ("complete", False)
    (done,) = coordinator.grabs("report")
    assert done.winner
    assert done.winner.pid in {child.pid for child in second.children()}
    assert (done.attempt, done.fence > before.fence) == (1, True)
    third = fleet.worker("one", ready=False)
    wait_until(lambda: "this one takes no work" in third.log.read_text(), 20, fleet.logs)
    last = coordinator.submit("report", toil.s("last", 1), instance="b").id
    assert coordinator.wait(last, 30).result in {child.pid for child in second.children()}, "it stays the node"
