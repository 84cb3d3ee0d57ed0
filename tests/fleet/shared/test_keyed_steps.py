"""A keyed task goes on in its own lane: by next steps of the same job, and in no way that would wait for itself."""

from typing import Any

import pytest

from coordinator import Job
from tests.harness.fleet import Fleet
from tests.harness.standing import Node
from tests.harness.waiting import within

NODE = Node("keyed", 2, settings={"sweep": 0.1, "retry_delay": 0.01})


@pytest.fixture
def keyed(fleet: Fleet) -> Any:
    """The module of the app."""
    return fleet.app("keyed")


def ended(keyed: Any, call: Any) -> Job:
    job: Job = keyed.coordinator.wait(call.id, 60)
    return job


def test_a_task_that_replaces_itself_page_by_page_keeps_its_lane_and_its_record_does_not_grow(
    fleet: Fleet, keyed: Any
) -> None:
    first = keyed.page.apply_async((0, 300), {"lane": "p"})
    behind = keyed.add.apply_async((1, 1), {"lane": "p"})
    job = ended(keyed, first)
    assert (job.state, job.result, job.attempt, job.losses, job.args) == ("succeeded", 300, 1, 0, (300, 300))
    assert first.get(timeout=60) == 300
    assert ended(keyed, behind).state == "succeeded"
    stamps = fleet.stamps()
    assert [stamp.name for stamp in stamps] == [f"page/{number}" for number in range(301)] + ["add/p"] * 2
    assert {stamp.attempt for stamp in stamps} == {1}
    fences = [stamp.fence for stamp in stamps[:-1]]
    assert fences == sorted(set(fences))
    record = keyed.coordinator.store._client.hgetall(keyed.coordinator.store.key("job", first.id))
    course = record.pop(b"course")  # the last 50 of its events
    assert len(course.splitlines()) == 50
    assert sum(len(name) + len(value) for name, value in record.items()) < 1500


def test_the_steps_of_a_chain_that_replaces_a_task_are_steps_as_any_and_its_chain_goes_on_behind_them(
    fleet: Fleet, keyed: Any
) -> None:
    steps = keyed.goes_on.s("replace chain", lane="own") | keyed.plain.s(1000)
    job = keyed.coordinator.wait(keyed.coordinator.submit("lane/own", steps, rollback=keyed.note.si()).id, 60)
    assert (job.state, job.result, job.step, job.attempt) == ("succeeded", 1113, 1, 3)  # `again` retries itself twice
    lone = ended(keyed, keyed.goes_on.delay("replace chain", lane="own"))
    assert (lone.state, lone.result, lone.step, lone.attempt) == ("succeeded", 113, 0, 3)
    other = ended(keyed, keyed.goes_on.delay("replace foreign", lane="own"))
    assert (other.state, other.result) == ("succeeded", 8)


@pytest.mark.parametrize(
    "how",
    ["replace group", "replace chord", "replace mixed", "return call", "return chain", "return group", "get call",
     "get chain", "get group", "wait call", "iterate group"],
)  # fmt: skip
def test_what_would_wait_for_its_own_lane_is_refused_at_once(fleet: Fleet, keyed: Any, how: str) -> None:
    with within(15):
        job = ended(keyed, keyed.goes_on.delay(how, lane="own"))
    error = job.error or {}
    assert (job.state, error["type"]) == ("failed", "NoRetry" if "replace" in how else "WouldDeadlock")
    said = error["message"]
    assert ("keyed.add" in said, "own lane 'lane/own'" in said, "another key" in said) == (True, True, True), said
