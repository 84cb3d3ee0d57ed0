"""The course of a job: what its record tells of each attempt, each wait and each act."""

from json import dumps
from typing import Any, cast

import pytest

from coordinator import Coordinator, InvalidJob
from coordinator.core.jobs.record import Job
from coordinator.core.store.times import moment
from tests.harness.command import Call, loaded
from tests.harness.hand_node import Puppet


def words(job: Job) -> list[str]:
    return [event.what for event in job.course]


def test_a_job_that_simply_ran_has_a_course_and_no_field_for_it(node: Puppet) -> None:
    node.submit("a", job_id="first")
    node.submit("a", job_id="second")
    node.finish(node.must_take())
    node.finish(node.must_take())
    for job_id in ("first", "second"):
        job = node.lanes.job(job_id)
        assert words(job) == ["submitted", "ready", "running", "succeeded"]
        assert [event.node for event in job.course] == [None, None, "one", "one"]
        assert not node.store._client.hexists(node.store.key("job", job_id), "course")
    first, second = node.lanes.job("first"), node.lanes.job("second")
    assert first.readied == first.submitted
    assert second.readied == first.ended


def test_a_wait_divides_into_lane_and_slot_also_where_the_end_of_one_job_starts_the_next(node: Puppet) -> None:
    node.submit("a", job_id="first")
    node.submit("a", job_id="second")
    assert node.lanes.job("second").readied is None
    given = node.finish(node.must_take(), next_token="next").next
    assert given
    second = node.lanes.job("second")
    assert second.readied == second.taken == node.lanes.job("first").ended
    node.finish(given)
    assert node.lanes.job("second").readied == second.readied


def test_each_attempt_is_told_with_its_node_its_number_and_its_cause(node: Puppet) -> None:
    node.submit("a", job_id="j", max_attempts=3)
    error = '{"type": "Timeout", "message": "no answer", "traceback": "long"}'
    node.finish(node.must_take(), "raised", detail=error)
    node.lose(node.must_take())
    node.finish(node.must_take())
    job = node.lanes.job("j")
    ran = [(event.what, event.attempt, event.node) for event in job.course[2:]]
    assert ran == [
        *(("running", 1, "one"), ("raised", 1, "one"), ("running", 2, "one"), ("lost", 2, "one")),
        *(("running", 3, "one"), ("succeeded", 3, "one")),
    ]
    assert job.course[3].cause == {"type": "Timeout", "message": "no answer"}
    assert [event.at for event in job.course] == sorted(event.at for event in job.course)


def test_acts_the_hold_and_the_end_before_a_retry_are_told(node: Puppet, call: Call) -> None:
    node.submit("a", job_id="first")
    node.submit("a", job_id="j", on_failure="hold")
    node.lanes.move("j", to="front", why="urgent", by="ann")
    node.finish(node.must_take())
    node.finish(node.must_take(), "failed")
    node.lanes.retry("j", why="mended", by="bob")
    node.finish(node.must_take(), "failed")
    node.lanes.cancel("j", why="no use", by="ann")
    node.lanes.retry("j", why="once more", by="bob")
    job = node.lanes.job("j")
    assert [word for word in words(job) if word != "ready"] == [
        *("submitted", "moved", "running", "held", "retried", "running", "held", "cancelled", "retried"),
    ]
    told = {event.what: event for event in job.course}
    assert (told["moved"].by, told["moved"].why) == ("ann", "urgent")
    assert told["held"].cause == {"message": "detail"}
    assert told["cancelled"].cause == {"type": "Cancelled", "message": "no use"}
    shown = call("job", "j").stdout.partition("course")[2].splitlines()
    assert len(shown) == len(job.course)
    assert shown[1].endswith("moved by ann: urgent")
    assert [event["what"] for event in loaded(call("job", "j", "--json"))["course"]] == words(job)


def test_a_course_keeps_its_last_fifty_lines_and_no_long_text(node: Puppet) -> None:
    node.submit("a", job_id="j", max_attempts=100)
    for number in range(60):
        node.finish(node.must_take(), "raised", detail=dumps({"type": "E", "message": f"{number}" + "é" * 300}))
    kept: Any = node.store._client.hget(node.store.key("job", "j"), "course")
    assert len(kept.splitlines()) == 50
    assert len(kept) < 50 * 450
    raised = [event for event in node.lanes.job("j").course if event.what == "raised"]
    assert [event.attempt for event in raised] == list(range(11, 61))
    assert raised[-1].cause
    assert raised[-1].cause["message"] == "59" + "é" * 98 + "…"


def test_the_steps_of_a_chain_and_the_wait_for_sub_results_are_told(node: Puppet) -> None:
    node.submit("a", job_id="j", max_attempts=2)
    node.finish(node.must_take(), "step", detail="1", following=("shop\ncelery", "shop.other", 0))
    taken = node.must_take()
    node.park(taken, "other", one=True)
    node.store.step("job_unpark", "j", taken.token, "raised", '{"type": "E", "message": "m"}', 60000, "", "", "", "")
    job = node.lanes.job("j")
    assert words(job)[2:] == ["running", "step", "running", "parked", "woken", "raised"]
    assert [event.attempt for event in job.course if event.what == "running"] == [1, 1]
    assert job.course[-1].due
    assert (job.course[-1].due - job.course[-1].at).total_seconds() == 60


@pytest.mark.parametrize("course", ["{", "[]", '{"what": "lost"}', '{"what": "lost", "at": "x"}', "7"])
def test_a_damaged_course_is_named_and_the_rest_is_told(node: Puppet, course: str) -> None:
    node.submit("a", job_id="j")
    node.store._client.hset(node.store.key("job", "j"), "course", course)
    job = node.lanes.job("j")
    assert (job.damaged, words(job)) == (("course",), ["submitted", "ready"])


def sweep_in_another_minute(node: Puppet) -> None:
    node.store._client.hdel(node.store.key("swept"), "sampled")
    node.sweep()


def test_a_sweep_counts_once_a_minute_and_keeps_a_day(node: Puppet) -> None:
    client: Any = node.store._client
    samples = node.store.key("samples")
    for _ in range(3):
        node.sweep()
    assert client.llen(samples) in (1, 2)  # a minute may have begun meanwhile
    client.rpush(samples, *[f"{number} {{}}" for number in range(1500)])
    sweep_in_another_minute(node)
    assert client.llen(samples) == 1440


def test_rates_are_of_the_last_hour_and_day_and_of_each_minute(node: Puppet, coordinator: Coordinator) -> None:
    now, client = node.store.now(), cast(Any, node.store._client)
    for minutes, ended in ((3000, 0), (1500, 100), (61, 4000), (59, 4500), (1, 7590)):
        counts = {"created": ended, "succeeded": ended - ended // 10, "failed": ended // 10, "waiting": minutes}
        client.rpush(node.store.key("samples"), f"{now - minutes * 60_000} {dumps(counts)}")
    client.hset(node.store.key("counts"), mapping={"created\nt": 7600, "succeeded\nt": 6840, "failed\nt": 760})
    rates = coordinator.rates()
    assert (rates.hour.ended, rates.hour.failed, rates.day.ended) == (3600, 360, 7500)
    assert rates.hour.per_second == pytest.approx(3600 / 3660, rel=0.01)
    assert [span.ended for span in rates.minutes] == [100, 3900, 500, 3090, 10]
    assert [span.states["waiting"] for span in rates.minutes] == [1500, 61, 59, 1, 0]
    assert rates.minutes[-1].seconds == pytest.approx(60, abs=5)


def test_rates_of_an_installation_that_counted_nothing_yet_are_0(coordinator: Coordinator) -> None:
    rates = coordinator.rates()
    assert (rates.hour.per_second, rates.day.ended, rates.minutes) == (0.0, 0, ())


def test_a_retry_that_takes_a_failure_back_counts_as_none(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("a", job_id="j")
    node.finish(node.must_take(), "failed")
    node.sweep()
    coordinator.retry("j")
    assert coordinator.rates().hour.failed == 0


def test_a_lane_shows_its_holder_its_line_and_its_last_runs(node: Puppet, coordinator: Coordinator, call: Call) -> None:
    for number in range(3):
        node.submit("a", job_id=f"past {number}")
        node.finish(node.must_take(), "failed")
    for job_id in ("first", "second", "third"):
        node.submit("a", job_id=job_id)
    taken = node.must_take()
    node.lanes.move("third", to="front")
    lane = coordinator.lane("a", runs=2)
    (holder,) = lane.holders
    assert (holder.job_id, holder.node, holder.fence) == ("first", "one", taken.fence)
    assert 50 < (holder.lease or 0) <= 60
    assert [job.id for job in lane.runs] == ["past 2", "past 1"]
    assert coordinator.lane("a", runs=0).runs == ()
    shown = call("lane", "a").stdout
    assert f"held by  first on one since {moment(holder.since)}, fence {taken.fence}, lease good for" in shown
    line, runs = shown.split("last runs")
    assert [word for word in line.split() if word in ("third", "second")] == ["third", "second"]
    assert runs.index("past 2") < runs.index("past 1") < runs.index("past 0")
    assert [run["id"] for run in loaded(call("lane", "a", "--runs", "1", "--json"))["runs"]] == ["past 2"]
    assert "empty" in call("lane", "nobody").stdout
    with pytest.raises(InvalidJob, match="runs"):
        coordinator.lane("a", runs=-1)


def test_a_lock_in_plain_code_is_shown_with_its_lease(coordinator: Coordinator) -> None:
    with coordinator.lock("a", ttl=30):
        (holder,) = coordinator.lane("a").holders
        assert 20 < (holder.lease or 0) <= 30


def test_status_shows_the_last_hour(node: Puppet, call: Call) -> None:
    node.sweep()
    for number in range(3):
        node.submit(f"key/{number}", max_attempts=2)
    node.finish(node.must_take(), "failed")
    node.finish(node.must_take(), "raised")
    node.finish(node.must_take())
    assert "1 failed, 1 retries (counted for" in call("status").stdout
    assert loaded(call("status", "--json"))["hour"]["counts"]["failed"] == 1
