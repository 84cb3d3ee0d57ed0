"""Why a job is where it is: chains of causes, each down to its root."""

from datetime import UTC, datetime, timedelta

import pytest

from coordinator import Coordinator, UnknownJob
from coordinator.diagnosis.status import list_jobs
from tests.harness.hand_node import Puppet


def test_a_chain_goes_from_lane_to_lane_down_to_the_job_that_runs(node: Puppet, coordinator: Coordinator) -> None:
    for job_id, keys in (("front", "a"), ("both", ["a", "b"]), ("last", "b")):
        node.submit(keys, job_id=job_id)
    node.must_take()
    first, second, root = coordinator.why("last")
    assert first == "job last waits behind job both in lane 'b'"
    assert second == "job both waits behind job front in lane 'a'"
    assert root.startswith("job front runs on node one for 0 s")
    assert node.order() == []
    for job_id in ("last", "both", "front"):
        coordinator.cancel(job_id)


def test_a_paused_lane_is_a_root_with_who_and_why(node: Puppet, coordinator: Coordinator) -> None:
    coordinator.pause("a", why="disk is full", by="me")
    node.submit("a", job_id="j")
    node.submit("a", job_id="k")
    behind, paused = coordinator.why("k")
    assert behind == "job k waits behind job j in lane 'a'"
    assert paused.startswith("lane 'a' is paused by me since 20")
    assert paused.endswith(": disk is full")
    assert coordinator.why("j") == [paused]
    coordinator.resume("a")
    assert node.order() == ["j", "k"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"queue": "gpu"}, "no living node that is of the app 'shop' serves the queue 'gpu'"),
        (
            {"needs": ["fast"]},
            "no living node that is of the app 'shop' and serves the queue 'celery' has the label 'fast'",
        ),
        ({"task": "shop.unknown"}, "serves the queue 'celery' knows the task 'shop.unknown'"),
    ],
)
def test_what_no_living_node_has_is_named(
    node: Puppet, coordinator: Coordinator, options: dict[str, str], says: str
) -> None:
    node.submit("a", job_id="j", **options)
    (told,) = coordinator.why("j")
    assert told.startswith("job j is ready, and no living node")
    assert told.endswith(says)
    coordinator.cancel("j")


def test_a_plain_clients_job_asks_for_no_app_and_a_step_for_its_own_queue(
    node: Puppet, coordinator: Coordinator
) -> None:
    made = coordinator.submit("a", {"task": "shop.unknown"}, if_unknown="wait")
    (told,) = coordinator.why(made.id)
    assert told.endswith("no living node that serves the queue 'celery' knows the task 'shop.unknown'")
    coordinator.cancel(made.id)
    node.submit("b", job_id="order")
    taken = node.must_take()
    node.store.step("job_finish", taken.id, taken.token, "step", '"done"', 0, "", "shop\ngpu", "shop.other", 0, "one",
                   taken.runner, "", 60000)  # fmt: skip
    (told,) = coordinator.why("order")
    assert told.endswith("no living node that is of the app 'shop' serves the queue 'gpu'")
    coordinator.cancel("order")


def test_without_a_node_that_is_the_cause_and_with_one_its_room(coordinator: Coordinator) -> None:
    node = Puppet(coordinator.store)
    node.submit("a", job_id="j")
    node.submit("b", job_id="k")
    assert coordinator.why("j") == ["job j is ready, and no node is alive"]
    node.up(capacity=1)
    assert coordinator.why("k") == ["job k is ready, and node one has room for it"]
    taken = node.must_take()
    other = "k" if taken.id == "j" else "j"
    (told,) = coordinator.why(other)
    assert told == f"job {other} is ready, and every slot of the nodes that may run it is taken: one (1 of 1)"
    node.lanes.drain("one", True, why="disk", by="ann")
    assert coordinator.why(other)[0].endswith("takes new jobs, since all of them drain")
    node.finish(taken, next_token="two-token")
    coordinator.cancel(other)


def test_instants_that_are_waited_for_are_roots(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("a", job_id="later", not_before=datetime.now(UTC) + timedelta(seconds=90))
    (told,) = coordinator.why("later")
    assert "job later is scheduled for later: 20" in told
    assert told.endswith(("(in 90 s)", "(in 89 s)"))
    node.submit("a", job_id="tomorrow", not_before=datetime.now(UTC) + timedelta(hours=23, minutes=56, seconds=50))
    assert coordinator.why("tomorrow")[0].endswith("(in 23 h 56 min)")
    node.submit("b", job_id="again", max_attempts=2)
    taken = node.must_take()
    node.store.step("job_finish", taken.id, taken.token, "raised", '{"type": "ValueError", "message": "no"}', 30000,
                   "", "", "", "", "one", taken.runner, "", 60000)  # fmt: skip
    node.submit("b", job_id="behind")
    behind, root = coordinator.why("behind")
    assert behind == "job behind waits behind job again in lane 'b'"
    assert root.startswith("job again is tried again at 20")
    assert root.endswith("(in 30 s): attempt 1 ended in ValueError: no")
    for job_id in ("later", "tomorrow", "behind", "again"):
        coordinator.cancel(job_id)


def test_a_parked_job_leads_to_the_sub_result_that_is_not_over(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("a", job_id="parent")
    parent = node.must_take()
    node.submit("b", job_id="child")
    child = node.must_take()
    handles = '{"ids": [null, "task", "child"], "one": false}'
    node.store.step("job_finish", parent.id, parent.token, "parked", handles, 0, "", "", "", "", "one", parent.runner,
                    "", 60000)  # fmt: skip
    parked, root = coordinator.why("parent")
    assert parked == "job parent is parked until all of its 2 sub-results have ended: task, child"
    assert root.startswith("job child runs on node one")
    node.finish(child)
    node.store.step("child_began", "parent", "task", parent.fence, "one", "a")
    again, begun, rest, end = coordinator.why("parent")
    assert (again, begun) == (parked, "sub-task task was begun on node one")
    assert rest.startswith("the other 1 have not begun, or have ended; a message that a lost node had fetched comes")
    assert "visibility_timeout" in rest
    assert end.startswith("its max_lifetime ends the wait at the latest: 20")
    coordinator.cancel("parent")


def test_a_held_job_waits_for_an_operator(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("a", job_id="j", on_failure="hold")
    node.finish(node.must_take(), "failed")
    (told,) = coordinator.why("j")
    assert told == "job j is held for an operator, who retries or cancels it: Lost: detail"
    coordinator.cancel("j")


def test_a_rollback_says_whether_it_runs(node: Puppet, coordinator: Coordinator) -> None:
    undo = {"task": "shop.other", "args": [], "kwargs": {}, "options": {}}
    node.submit("a", job_id="j", rollback=undo)
    node.finish(node.must_take(), "failed")
    assert coordinator.why("j") == ["job j is to be rolled back, and node one has room for it"]
    assert [job.id for job in list_jobs(coordinator.store, state="rolling_back")] == ["j"]
    taken = node.must_take()
    assert coordinator.why("j")[0].startswith("job j is rolled back on node one for 0 s")
    node.finish(taken)
    assert coordinator.why("j") == ["job j is over, rolled_back: Lost: detail"]


def test_a_parked_rollback_says_what_it_waits_for(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("a", job_id="j", rollback={"task": "shop.other"})
    node.finish(node.must_take(), "failed")
    undo = node.must_take()
    node.store.step("job_finish", undo.id, undo.token, "parked", '{"ids": ["x"], "one": true}', 0, "", "", "", "",
                    "one", undo.runner, "", 60000)  # fmt: skip
    (said, *_) = coordinator.why("j")
    assert "its rollback is parked until all of its 1 sub-results have ended: x" in said
    assert [job.id for job in list_jobs(node.store, state="rolling_back")] == ["j"]


def test_a_job_that_is_stopped_and_one_whose_node_is_gone_say_so(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("a", job_id="j")
    node.must_take()
    coordinator.cancel("j", why="too long", by="me")
    assert "it is being stopped, to end as cancelled (Cancelled: too long (by me))" in coordinator.why("j")[0]
    node.nodes.leave("one", "a")
    assert coordinator.why("j")[0].endswith("that node is not alive: another takes the job when its lease ends")
    node.lapse("j")
    node.sweep()


def test_a_lock_in_plain_code_is_a_root(coordinator: Coordinator, node: Puppet) -> None:
    with coordinator.lock("a") as lease:
        node.submit("a", job_id="j")
        behind, root = coordinator.why("j")
        assert behind.startswith("job j waits behind job ")
        assert "is a lock in plain code, held for 0 s" in root
        assert lease.fence
    node.order()


def test_an_unknown_job_is_unknown(coordinator: Coordinator) -> None:
    with pytest.raises(UnknownJob):
        coordinator.why("nobody")
