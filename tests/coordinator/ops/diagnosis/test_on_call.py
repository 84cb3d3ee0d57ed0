"""What waits for a person is found: held jobs, lanes that somebody paused, failures that no retry mends."""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from celery.canvas import Signature

from coordinator import Coordinator, UnknownJob
from coordinator.core.finding import Finding
from coordinator.ops.diagnosis import on_call
from coordinator.ops.diagnosis.doctor import examine
from tests.harness.hand_node import Puppet

MINUTE, HOUR = 60_000, 3_600_000


@pytest.fixture
def node(coordinator: Coordinator) -> Iterator[Puppet]:
    puppet = Puppet(coordinator.store)
    puppet.up()
    puppet.sweep()
    yield puppet
    for job_id in ("one", "two"):
        with suppress(UnknownJob):
            coordinator.cancel(job_id)


def found(node: Puppet, code: str) -> Finding | None:
    return next((one for one in examine(node.store) if one.code == code), None)


def must_find(node: Puppet, code: str) -> Finding:
    one = found(node, code)
    assert one
    return one


def hold(node: Puppet, job_id: str, key: str) -> None:
    node.submit(key, job_id=job_id, on_failure="hold")
    node.finish(node.must_take(), "failed")


def earlier(node: Puppet, job_id: str, ms: int) -> None:
    """As if all that happened to the job had happened so long ago."""
    client: Any = node.store._client
    name = node.store.key("job", job_id)
    course = client.hget(name, "course").decode()
    client.hset(name, "course", re.sub(r'("at":\s*"?)(\d+)', lambda at: f"{at[1]}{int(at[2]) - ms}", course))


def test_a_held_job_is_found_by_its_name_with_the_act_and_several_by_their_number(node: Puppet) -> None:
    assert found(node, "job.held") is None
    hold(node, "one", "a")
    earlier(node, "one", 9 * MINUTE)
    first = must_find(node, "job.held")
    assert str(first) == (
        "warning [job.held] (job one) it is held for an operator, who retries or cancels it, for 9 min"
    )
    assert (first.act, first.values, first.fix) == ("retry", {"id": "one"}, "coordinator retry one --why …")
    node.submit("c", job_id="over")
    node.finish(node.must_take())
    node.store._client.sadd(node.store.key("state", "held"), "over")
    assert "the oldest of 2 jobs" in must_find(node, "job.held").message, "its index is wrong, and it is not the oldest"
    node.store._client.srem(node.store.key("state", "held"), "over")
    hold(node, "two", "b")
    both = must_find(node, "job.held")
    assert (both.thing, both.fix) == ("job one", "coordinator jobs --state held")
    assert both.message == (
        "it is the oldest of 2 jobs that are held for an operator, who retries or cancels each: for 9 min"
    )


def test_the_oldest_held_job_among_many_is_one_of_those_that_were_drawn(
    node: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_call, "_HELD", 1)
    hold(node, "one", "a")
    hold(node, "two", "b")
    assert "the oldest of 1 drawn by chance from 2 jobs" in must_find(node, "job.held").message


@pytest.mark.parametrize("course", ["rubbish", '{"what": "held", "at": "never"}', ""])
def test_a_held_job_whose_course_is_damaged_counts_from_its_submit(node: Puppet, course: str) -> None:
    hold(node, "one", "a")
    node.store._client.hset(node.store.key("job", "one"), "course", course)
    assert re.search(r"for \d+ s$", must_find(node, "job.held").message)


def test_a_paused_lane_is_found_while_jobs_wait_in_it_with_who_paused_it_and_why(
    coordinator: Coordinator, node: Puppet
) -> None:
    coordinator.pause("a", why="a refund is on its way", by="tim")
    assert found(node, "lane.paused") is None, "no job waits there"
    node.submit("a", job_id="one")
    paused = must_find(node, "lane.paused")
    assert (paused.level, paused.thing, paused.act, paused.values) == ("info", "lane a", "resume", {"key": "a"})
    assert re.fullmatch(
        r"it is paused, and 1 job waits in it: for \d s, by tim \(a refund is on its way\)", paused.message
    )
    coordinator.pause("b", by="ulla")
    for _ in range(2):
        node.submit("b")
    several = must_find(node, "lane.paused")
    assert re.fullmatch(
        r"it is the oldest of 2 lanes, among 2 paused ones, in which 3 jobs wait: for \d s, by tim \(a refund is on "
        r"its way\)",
        several.message,
    )
    coordinator.resume("a")
    assert must_find(node, "lane.paused").thing == "lane b"
    coordinator.resume("b")
    assert found(node, "lane.paused") is None


def test_of_very_many_paused_lanes_a_part_is_counted_and_that_is_said(
    coordinator: Coordinator, node: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_call, "_PAUSED", 1)
    for key in ("a", "b"):
        coordinator.pause(key, by="ulla")
        node.submit(key)
    assert must_find(node, "lane.paused").message.startswith(
        "it is the oldest of 1 lanes, among 1 drawn by chance from 2 "
    )


def test_a_rollback_that_failed_is_found_for_an_hour(node: Puppet) -> None:
    node.submit("a", job_id="one", rollback=Signature("shop.work"))
    node.finish(node.must_take(), "failed")
    node.finish(node.must_take(), "failed")
    assert node.lanes.job("one").state == "double_fault"
    fault = must_find(node, "job.double-fault")
    assert fault.message == ("it failed within the last hour, and so did the rollback: work is half undone")
    assert fault.fix == "coordinator jobs --state double_fault"
    client: Any = node.store._client
    client.zadd(node.store.key("ended", "double_fault"), {"one": node.store.now() - HOUR - 1})
    assert found(node, "job.double-fault") is None


def test_a_job_that_was_lost_too_often_is_found_and_one_that_simply_failed_is_not(node: Puppet) -> None:
    node.submit("a", job_id="one", max_losses=1)
    node.lose(node.must_take())
    node.finish(node.must_take(), "failed")
    assert found(node, "job.lost") is None
    node.submit("b", job_id="two", max_losses=1)
    for _ in range(2):
        node.lose(node.must_take())
    assert node.lanes.job("two").state == "failed"
    lost = must_find(node, "job.lost")
    assert lost.message == ("it failed within the last hour, after more than max_losses runs died with process or node")
    assert lost.fix == "coordinator why -- two"
    node.submit("c", job_id="three", max_losses=0)
    node.lose(node.must_take())
    last = must_find(node, "job.lost")
    assert (last.thing, "it is the last of 2 jobs that failed" in last.message) == ("job three", True)
