"""Jobs that return handles of other tasks: parked, holding their lane and no worker, until all of them ended."""

from typing import Any

import pytest

from tests.harness.fleet import Fleet
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

NODE = Node("depot", 3, settings={"lock_ttl": 5, "sweep": 0.1, "heartbeat": 0.5})


@pytest.fixture
def depot(fleet: Fleet) -> Any:
    """The module of the app, of which there is one node."""
    return fleet.depot


def spans(fleet: Fleet, name: str) -> list[tuple[int, int]]:
    begins, ends = fleet.stamps(name, "begin"), fleet.stamps(name, "end")
    return [(begin.at, end.at) for begin, end in zip(begins, ends, strict=True)]


def test_attempts_with_sub_results_never_overlap_and_the_next_job_runs_only_when_none_is_at_work(
    fleet: Fleet, depot: Any
) -> None:
    parts = [["fail", "bad"], ["work", "slow", 0.8]]
    bad = depot.coordinator.submit("k", depot.spread.s("parent", parts), max_attempts=3, retry_delay=0)
    after = depot.coordinator.submit("k", depot.work.s("after"))
    assert depot.coordinator.wait(after.id, 60).state == "succeeded"
    job = depot.coordinator.job(bad.id)
    assert (job.state, job.attempt, job.error["type"]) == ("failed", 3, "SubResultFailed")
    tries, slow = fleet.stamps("parent", "begin"), spans(fleet, "slow")
    assert len(tries) == len(slow) == 3
    for (_, end), later in zip(slow, [*tries[1:], *fleet.stamps("after", "begin")], strict=True):
        assert end < later.at


def test_a_worker_notes_that_it_has_begun_a_sub_task_until_that_ends(fleet: Fleet, depot: Any) -> None:
    store = depot.coordinator.store
    job = depot.coordinator.submit("k", depot.spread.s("parent", [["work", "slow", 4.0]]))
    begun = store.key("begun", job.id)
    wait_until(lambda: store._client.hlen(begun) == 1)
    (node,) = depot.coordinator.nodes()
    (note,) = store._client.hvals(begun)
    assert note.decode().split(" ", 2)[2] == node.name
    assert f"was begun on node {node.name}" in str(depot.coordinator.why(job.id))
    assert depot.coordinator.wait(job.id, 60).state == "succeeded"
    assert not store._client.exists(begun)


@pytest.mark.broker
def test_a_jobs_result_is_what_came_of_its_handles(fleet: Fleet, depot: Any) -> None:
    wanted = {
        "one": [3],
        "group": [3, 7],
        "chain": [13],
        "chord": [10],
        "none": None,
        "empty": [],
        "nones": [None, None],
    }
    jobs = {kind: depot.coordinator.submit(kind, depot.odd.s(kind)).id for kind in wanted}
    jobs["some"] = depot.coordinator.submit("some", depot.spread.s("some", [["work", "a"], None])).id
    found = {kind: depot.coordinator.wait(job_id, 60) for kind, job_id in jobs.items()}
    assert {kind: (job.state, job.result) for kind, job in found.items()} == {
        kind: ("succeeded", result) for kind, result in {**wanted, "some": ["a", None]}.items()
    }
    assert depot.app.AsyncResult(jobs["group"]).get(timeout=60) == [3, 7]


@pytest.mark.parametrize("kind", ["slow", "slow chain", "slow chord"])
def test_the_end_of_the_last_sub_task_is_told_at_once(fleet: Fleet, depot: Any, kind: str) -> None:
    job = depot.coordinator.wait(depot.coordinator.submit("k", depot.odd.s(kind)).id, 60)
    assert (job.state, job.result) == ("succeeded", ["last"])
    (end,) = fleet.stamps("last", "end")
    assert job.ended.timestamp() - end.at / 1e6 < 7, "the slow look comes 10 s after it parked"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("nested", "flat list"),
        ("mixed", "nothing else"),
        ("silent", "stores no result"),
        ("silent group", "stores no result"),
        ("silent chain", "stores no result"),
        ("silent chord", "stores no result"),
        ("silenced", "stores no result"),
    ],
)
def test_what_cannot_be_waited_for_is_refused_and_not_tried_again(depot: Any, kind: str, text: str) -> None:
    job = depot.coordinator.submit("k", depot.odd.s(kind), max_attempts=3, retry_delay=0)
    found = depot.coordinator.wait(job.id, 60)
    assert (found.state, found.attempt, found.error["type"]) == ("failed", 1, "NoRetry")
    assert text in found.error["message"]


def test_a_sub_result_that_is_a_job_of_another_lane_is_waited_for(fleet: Fleet, depot: Any) -> None:
    parent = depot.coordinator.submit("k", depot.sub_job.s("other", "child"))
    after = depot.coordinator.submit("k", depot.work.s("after"))
    assert depot.coordinator.wait(after.id, 60).state == "succeeded"
    assert depot.coordinator.job(parent.id).result == ["child"]
    assert fleet.stamps("child", "end")[0].at < fleet.stamps("after", "begin")[0].at


def test_a_sub_job_that_ended_is_kept_while_its_parent_waits_for_another_one(fleet: Fleet, depot: Any) -> None:
    store, names = depot.coordinator.store, ["quick", "slow", "last"]
    depot.coordinator.pause("busy")
    parent = depot.coordinator.submit("k", depot.held_jobs.s(*names, "busy"))
    fleet.begun("quick", "slow")
    fleet.go("quick")
    depot.coordinator.wait("quick", 60)
    store._client.pexpire(store.key("job", "quick"), 10_000)
    fleet.go("slow")
    wait_until(lambda: store._client.pttl(store.key("job", "quick")) > 3_000_000)
    fleet.go("last")
    assert depot.coordinator.wait(parent.id, 60).result == [*names, None], "one that was skipped is None"
    depot.coordinator.resume("busy")


def test_a_sub_result_that_waits_in_a_lane_which_its_parent_holds_is_refused(fleet: Fleet, depot: Any) -> None:
    parent = depot.coordinator.submit(["a", "b"], depot.sub_job.s("b", "child"), max_attempts=3)
    found = depot.coordinator.wait(parent.id, 60)
    assert (found.state, found.attempt, found.error["type"]) == ("failed", 1, "WouldDeadlock")
    fleet.begun("child")


def test_a_sub_result_that_coalesced_into_a_job_of_that_lane_is_refused_too(fleet: Fleet, depot: Any) -> None:
    depot.coordinator.submit("k", depot.held.s("first"))
    parent = depot.coordinator.submit("k", depot.sub_job.s("k", "same", "defer"))
    depot.coordinator.submit("k", depot.work.s("same"), when_busy="defer")
    fleet.go("first")
    assert depot.coordinator.wait(parent.id, 60).error["type"] == "WouldDeadlock"
    fleet.begun("same")
    assert depot.coordinator.counts()["created"] == 3


def test_past_its_time_limit_the_sub_tasks_are_revoked_and_there_is_no_further_attempt(
    fleet: Fleet, depot: Any
) -> None:
    parts = [["held", "child"], ["work", "quick"]]
    job = depot.coordinator.submit("k", depot.spread.s("parent", parts), time_limit=5, max_attempts=3)
    fleet.begun("child")
    found = depot.coordinator.wait(job.id, 60)
    assert (found.state, found.attempt, found.error["type"]) == ("failed", 1, "TimedOut")
    assert "1 of 2" in found.error["message"]
    assert_stopped(fleet, depot, "child")


@pytest.mark.parametrize("how", ["cancel", "release", "expire"])
def test_the_sub_tasks_of_a_parked_job_that_ends_are_stopped(fleet: Fleet, depot: Any, how: str) -> None:
    lifetime = 6 if how == "expire" else None
    job = depot.coordinator.submit("k", depot.spread.s("parent", [["held", "child"]]), max_lifetime=lifetime)
    after = depot.coordinator.submit("k", depot.work.s("after"))
    fleet.begun("child")
    wait_until(lambda: depot.coordinator.job(job.id).state == "parked")
    if how == "cancel":
        assert depot.coordinator.cancel(job.id, why="enough") == "cancelled"
    elif how == "release":
        assert depot.coordinator.release("k", why="enough") == job.id
    assert depot.coordinator.wait(job.id, 60).state == ("expired" if how == "expire" else "cancelled")
    assert depot.coordinator.wait(after.id, 60).state == "succeeded"
    assert_stopped(fleet, depot, "child")


def test_the_sub_jobs_of_a_parked_job_that_is_cancelled_are_cancelled(fleet: Fleet, depot: Any) -> None:
    depot.coordinator.submit("busy", depot.held.s("busy"))
    fleet.begun("busy")
    job = depot.coordinator.submit("k", depot.sub_job.s("busy", "child"))
    wait_until(lambda: depot.coordinator.job(job.id).state == "parked")
    child = depot.coordinator.lane("busy").jobs[1]
    depot.coordinator.cancel(job.id)
    assert depot.coordinator.wait(child, 60).error["message"].startswith(f"sub-result of job {job.id}")
    fleet.go("busy")


def assert_stopped(fleet: Fleet, depot: Any, name: str) -> None:
    """The task `held` of that name is at work no more, though it was let go."""
    wait_until(lambda: "Terminating" in fleet.logs() or "terminated" in fleet.logs(), what=fleet.logs)
    fleet.go(name)
    last = depot.coordinator.submit("last", depot.work.s("last"))
    assert depot.coordinator.wait(last.id, 60).state == "succeeded"
    assert fleet.stamps(name, "end") == []
