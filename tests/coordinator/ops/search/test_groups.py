"""Jobs counted by their state, error, task and tenant."""

import json
from typing import Any

import pytest

from coordinator import Coordinator, InvalidJob
from tests.harness.command import Call, loaded, told
from tests.harness.hand_node import Puppet


def fail(node: Puppet, key: str, job_id: str, error: str, message: str = "no answer", **options: Any) -> None:
    node.submit(key, job_id=job_id, **options)
    node.finish(node.must_take(), "failed", detail=json.dumps({"type": error, "message": message}))


@pytest.fixture
def night(node: Puppet) -> Puppet:
    """What failed: of two tenants, of two tasks, with two errors; and one that waits behind one that runs."""
    fail(node, "acme/1", "a", "TimeoutError", "first")
    fail(node, "acme/2", "b", "TimeoutError", "second", task="shop.other")
    fail(node, "zeta/1", "c", "TimeoutError", "third")
    fail(node, "zeta/1", "d", "MyTimeoutError")
    for number in (1, 2):
        node.submit("alone", job_id=f"alone {number}")
    node.must_take()
    return node


@pytest.mark.parametrize(
    ("by", "wanted", "expected"),
    [
        ("error", {"state": "bad"}, {"TimeoutError": 3, "MyTimeoutError": 1}),
        ("error", {"state": "bad", "without": ["a", "d"]}, {"TimeoutError": 2}),
        ("error", {}, {"TimeoutError": 3, "": 2, "MyTimeoutError": 1}),
        ("task", {"state": "failed"}, {"shop.work": 3, "shop.other": 1}),
        ("tenant", {}, {"acme/": 2, "zeta/": 2, "alone": 2}),
        ("state", {}, {"failed": 4, "waiting": 1, "running": 1}),
        ("state", {"key": "a*"}, {"failed": 2, "waiting": 1, "running": 1}),
        ("state", {"state": "bad"}, {"failed": 4}),
    ],
)
def test_jobs_are_counted_by_what_they_share_and_each_filter_of_a_group_finds_just_these(
    night: Puppet, coordinator: Coordinator, by: Any, wanted: Any, expected: dict[str, int]
) -> None:
    groups = coordinator.job_groups(by, **wanted)
    assert ({one.name: one.count for one in groups.rows}, groups.complete) == (expected, True)
    assert groups.jobs == sum(expected.values())
    assert [one.count for one in groups.rows] == sorted((one.count for one in groups.rows), reverse=True)
    for one in groups.rows:
        assert bool(one.where) == bool(one.name)
        if one.where:
            assert len(coordinator.jobs(**{**wanted, **one.where}).jobs) == one.count


def test_a_group_has_the_latest_as_its_example_with_the_words_of_its_error(
    night: Puppet, coordinator: Coordinator
) -> None:
    first = coordinator.job_groups(state="bad").rows[0]
    assert (first.name, first.example, first.text, first.at) == (
        "TimeoutError", "c", "third", coordinator.job("c").ended,
    )  # fmt: skip


def test_a_count_that_its_time_ends_says_so(night: Puppet, coordinator: Coordinator) -> None:
    assert not coordinator.job_groups("task", seconds=0).complete
    assert coordinator.job_groups("state", seconds=0).complete, "the states are counted by their indexes"
    with pytest.raises(InvalidJob, match="by 'colour'"):
        coordinator.job_groups("colour")  # type: ignore[arg-type]


def test_the_command_lists_groups_and_the_text_of_each_error(night: Puppet, call: Call) -> None:
    said = told(call("jobs", "--by", "error", "--state", "bad")).splitlines()
    assert (said[1].split()[:2], said[-1]) == (["TimeoutError", "3"], "4 jobs")
    assert loaded(call("jobs", "--by", "tenant", "--json"))["jobs"] == 6
    assert "TimeoutError: second" in told(call("jobs", "--state", "bad"))


def test_all_that_failed_with_an_error_but_one_is_tried_again(
    night: Puppet, coordinator: Coordinator, call: Call
) -> None:
    wanted = ("--state", "bad", "--error", "TimeoutError:", "--since", "1h", "--except", "b", "--why", "it answers")
    assert "TimeoutError" in told(call("jobs", *wanted[:-2]))
    assert told(call("retry", *wanted, "--yes")) == "retry: 2 jobs"
    assert [coordinator.job(job_id).over for job_id in "abcd"] == [False, True, False, True]
    trail = coordinator.actions()[-1]
    assert (trail.before, trail.why) == ("2 found", "it answers")
    assert "without=b" in trail.name
