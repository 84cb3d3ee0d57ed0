"""Jobs that wait for other jobs and for events (`after`)."""

import json
from typing import Any

import pytest

from coordinator import InvalidJob, UnknownJob
from coordinator.core.author import act_of
from coordinator.core.jobs.record import Job
from coordinator.core.store.steps import event_set
from tests.harness.hand_node import Puppet, sketch
from tests.harness.leftovers import leftovers

EVENT = "\1"
BAD = ("failed", "cancelled", "expired")


class AnEvent:
    def __init__(self, name: str) -> None:
        self.name, self.cause = name, EVENT + name


def end_badly(node: Puppet, job_id: str, how: str) -> None:
    if how == "cancelled":
        node.lanes.cancel(job_id)
    elif how == "failed":
        node.finish(node.must_take(), "failed", detail='{"type": "ValueError"}')
    else:
        node.store._client.zadd(node.store.key("expiry"), {job_id: 1})
        node.sweep()


def state(node: Puppet, *job_ids: str) -> list[str]:
    return [node.lanes.job(job_id).state for job_id in job_ids]


def given(node: Puppet, job_id: str) -> Any:
    text = node.store.read("HGET", node.store.key("job", job_id), "given")
    return text and json.loads(f"{{{text.decode()}}}")


def set_event(node: Puppet, name: str, value: object = None) -> tuple[str, str, int]:
    what, held, count = event_set(node.store, name, json.dumps(value), 60_000, act_of(why="", by="me"))
    return what.decode(), held.decode(), count


def test_a_job_stands_in_its_lanes_once_all_its_causes_have_ended(node: Puppet) -> None:
    node.submit("a", job_id="one")
    node.submit("b", job_id="two")
    assert node.submit("c", job_id="last", after=["one", "two"]).position == -1
    assert node.order() == ["one", "two", "last"]


def test_a_blocked_job_stands_in_no_line_and_keeps_the_place_of_its_submit(node: Puppet) -> None:
    node.submit("a", job_id="cause")
    node.submit("b", job_id="first")
    taken = [node.must_take(), node.must_take()]
    node.submit("b", job_id="blocked", after="cause")
    node.submit("b", job_id="behind")
    assert node.lanes.lane("b").jobs == ("first", "behind")
    for one in taken:
        node.finish(one)
        if one.id == "cause":
            assert node.lanes.lane("b").jobs in (("first", "blocked", "behind"), ("blocked", "behind"))
    assert node.order() == ["blocked", "behind"]


def test_the_runner_that_ends_the_last_cause_takes_the_job_in_the_same_step(node: Puppet) -> None:
    node.submit("a", job_id="cause")
    node.submit("a", job_id="last", after="cause")
    assert node.finish(node.must_take(), next_token="x" * 24).next.id == "last"  # type: ignore[union-attr]


def test_those_that_one_cause_lets_go_on_start_in_the_order_of_a_line(node: Puppet) -> None:
    node.submit("a", job_id="cause")
    for name, priority in (("first", 0), ("urgent", 5), ("last", 0)):
        node.submit("b", job_id=name, priority=priority, after="cause")
    assert node.order() == ["cause", "urgent", "first", "last"]


def test_a_job_that_a_cause_holds_has_not_begun_and_may_be_revoked(node: Puppet) -> None:
    node.submit("a", job_id="cause")
    node.submit("b", job_id="last", after="cause", on_failure_of="hold")
    end_badly(node, "cause", "failed")
    assert node.lanes.revoke("last", why="revoked", by="celery") == "cancelled"


@pytest.mark.parametrize("how", BAD)
@pytest.mark.parametrize("before", [False, True], ids=["it ends later", "it has ended"])
def test_a_job_fails_with_its_cause(node: Puppet, how: str, before: bool) -> None:
    node.submit("a", job_id="cause")
    if before:
        end_badly(node, "cause", how)
    node.submit("a", job_id="last", after="cause")
    if not before:
        end_badly(node, "cause", how)
    job = node.lanes.job("last")
    assert (job.state, (job.error or {})["type"]) == ("failed", "CauseFailed")
    assert "it was to run after job cause, which " in (job.error or {})["message"]


@pytest.mark.parametrize("before", [False, True], ids=["it ends later", "it has ended"])
def test_a_job_may_run_after_a_cause_that_failed(node: Puppet, before: bool) -> None:
    node.submit("a", job_id="cause")
    if before:
        end_badly(node, "cause", "failed")
    node.submit("a", job_id="last", after={"part": "cause"}, on_failure_of="run")
    if not before:
        end_badly(node, "cause", "failed")
    assert (state(node, "last"), given(node, "last")) == (["ready"], {"part": None})


@pytest.mark.parametrize("before", [False, True], ids=["it ends later", "it has ended"])
def test_a_job_is_held_until_its_cause_succeeds_after_all(node: Puppet, before: bool) -> None:
    node.submit("a", job_id="cause")
    node.submit("b", job_id="other")
    if before:
        end_badly(node, "cause", "failed")
    node.submit("c", job_id="last", after=["cause", "other"], on_failure_of="hold")
    if not before:
        end_badly(node, "cause", "failed")
    assert state(node, "last") == ["held"]
    node.finish(node.must_take())
    for _ in range(2):
        node.lanes.retry("cause", why="", by="me")
        end_badly(node, "cause", "failed")
        assert state(node, "last") == ["held"]
    node.lanes.retry("cause", why="", by="me")
    node.finish(node.must_take())
    assert state(node, "last") == ["ready"]


def test_an_operator_lets_a_held_job_go_on_or_cancels_it(node: Puppet) -> None:
    node.submit("a", job_id="cause")
    for name in ("goes on", "ends"):
        node.submit("b", job_id=name, after="cause", on_failure_of="hold")
    end_badly(node, "cause", "failed")
    node.lanes.retry("goes on", why="", by="me")
    node.lanes.cancel("ends", why="", by="me")
    assert state(node, "goes on", "ends") == ["ready", "cancelled"]
    assert node.order() == ["goes on"]
    assert not leftovers(node.store)


def test_results_are_handed_on_by_name(node: Puppet) -> None:
    node.submit("a", job_id="one")
    node.finish(node.must_take(), detail='{"pages": ["' + "x" * 300 + '"]}')
    node.submit("b", job_id="two")
    set_event(node, "said", {"yes": True})
    causes = {"first": "one", "second": "two", "said": AnEvent("said"), "again": "two"}
    node.submit("c", job_id="last", after=causes)
    node.finish(node.must_take(), detail="[2]")
    found = {"first": {"pages": ["x" * 300]}, "said": {"yes": True}, "second": [2], "again": [2]}
    assert given(node, "last") == found


def test_a_cause_that_nobody_knows_is_refused_and_nothing_is_written(node: Puppet) -> None:
    node.submit("a", job_id="known")
    before = node.names()
    with pytest.raises(UnknownJob, match="'never'"):
        node.submit("b", job_id="last", after=["known", "never"])
    assert node.names() == before


def test_aliases_of_coalesced_submits_stand_for_their_job(node: Puppet) -> None:
    node.submit("a", job_id="one", when_busy="defer")
    assert node.submit("a", job_id="two", when_busy="defer").outcome == "coalesced"
    node.submit("b", job_id="last", after=["two"])
    assert node.order() == ["one", "last"]


def test_a_skipped_submission_stands_for_the_job_for_which_it_was_skipped(node: Puppet) -> None:
    node.submit("a", job_id="one")
    skipped = node.submit("a", when_busy="skip")
    node.submit("b", job_id="last", after=skipped)
    assert node.order() == ["one", "last"]


def test_a_cause_that_is_cancelled_while_it_runs_fails_those_behind_once_it_has_stopped(node: Puppet) -> None:
    node.submit("a", job_id="one")
    node.must_take()
    node.submit("b", job_id="last", after="one")
    node.lanes.cancel("one", why="", by="me")
    assert state(node, "one", "last") == ["running", "blocked"]
    taken = next(iter(node.work().values())).decode().split()
    node.store.step("job_lose", "one", taken[0], "stopped", '"stopped"', 0)
    assert state(node, "one", "last") == ["cancelled", "failed"]


def test_many_are_submitted_in_any_order_and_run_after_their_causes(node: Puppet) -> None:
    requests = [sketch(f"k{i}", job_id=f"{i}", **({"after": [f"{i + 1}"]} if i < 999 else {})) for i in range(1000)]
    found = node.lanes.submit_many(requests)
    assert [one.id for one in found] == [f"{i}" for i in range(1000)]
    assert node.order() == [f"{i}" for i in reversed(range(1000))]
    assert not leftovers(node.store)


def test_a_circle_within_a_call_is_refused_and_named(node: Puppet) -> None:
    before = node.names()
    ring = [sketch("a", job_id=name, after=[other]) for name, other in (("1", "3"), ("2", "1"), ("3", "2"))]
    with pytest.raises(InvalidJob, match="wait for each other: 1 after 3 after 2 after 1"):
        node.lanes.submit_many(ring)
    assert node.names() == before


def test_a_failure_goes_down_the_whole_graph_in_portions(node: Puppet) -> None:
    node.submit("a", job_id="0")
    node.lanes.submit_many([sketch("b", job_id=f"{i}", after=[f"{i - 1}"]) for i in range(1, 1000)])
    node.lanes.submit_many([sketch("c", job_id=f"leaf {i}", after=["0"]) for i in range(300)])
    end_badly(node, "0", "failed")
    failed = node.lanes.counts()["failed"]
    assert failed == 101, "the cause, and a portion"
    for _ in range(13):
        node.sweep()
    assert node.lanes.counts()["failed"] == 1300
    assert not leftovers(node.store)


def test_a_cause_whose_record_goes_is_an_outcome_of_its_own(node: Puppet) -> None:
    node.submit("a", job_id="cause")
    node.submit("b", job_id="last", after="cause")
    node.submit("c", job_id="all the same", after={"part": "cause"}, on_failure_of="run")
    node.lanes.cancel("cause", why="", by="me")
    node.submit("a", job_id="cause 2")
    for name in ("last 2", "all the same 2"):
        node.submit("b", job_id=name, after="cause 2", on_failure_of="fail" if name == "last 2" else "run")
    node.store._client.delete(node.store.key("job", "cause 2"))
    node.sweep()
    job = node.lanes.job("last 2")
    assert job.state == "failed"
    assert "which is gone" in (job.error or {})["message"]
    assert node.lanes.job("all the same 2").state == "ready"


def test_an_event_lets_all_go_on_that_wait_for_it(node: Puppet) -> None:
    for i in range(250):
        node.submit(f"k{i}", job_id=f"{i}", after=AnEvent("approved"))
    assert set_event(node, "approved", 1) == ("set", "1", 250)
    assert len(node.take_all()) == 100
    node.sweep()
    node.sweep()
    assert len(node.take_all()) == 150
    assert set_event(node, "approved", 1) == ("known", "1", 0)
    assert set_event(node, "approved", 2) == ("other", "1", 0)


def test_an_event_may_be_set_before_anybody_waits(node: Puppet) -> None:
    set_event(node, "approved")
    assert node.submit("a", after=AnEvent("approved")).outcome == "started"


def wait(node: Puppet, event: str, timeout: int = 60_000, otherwise: str = "") -> None:
    detail = {"event": event, "timeout": timeout, "steps": '[{"task": "shop.other"}]', "else": otherwise}
    node.finish(node.must_take(), "awaits", detail=json.dumps(detail), following=("shop\ncelery", "shop.other", 0))


@pytest.mark.parametrize("before", [False, True], ids=["set later", "set before"])
def test_a_running_job_waits_for_an_event_without_a_worker_and_goes_on(node: Puppet, before: bool) -> None:
    node.submit("a", job_id="one")
    if before:
        set_event(node, "approved", {"by": "me"})
    wait(node, "approved")
    if not before:
        assert state(node, "one") == ["parked"]
        assert node.take() is None
        set_event(node, "approved", {"by": "me"})
    job = node.lanes.job("one")
    assert (job.state, job.task) == ("ready", "shop.other")
    assert node.order() == ["one"]
    assert not leftovers(node.store)


@pytest.mark.parametrize("otherwise", ["", '0\nshop.other\nshop\ncelery\0[{"task": "shop.other"}]'])
def test_an_event_that_does_not_come_in_time_is_an_outcome_of_its_own(node: Puppet, otherwise: str) -> None:
    node.submit("a", job_id="one")
    wait(node, "approved", 0, otherwise)
    node.sweep()
    job: Job = node.lanes.job("one")
    assert job.state == ("ready" if otherwise else "failed")
    if not otherwise:
        assert (job.error or {})["type"] == "EventTimeout"
    set_event(node, "approved")
    assert node.lanes.job("one").state == job.state


def test_a_cancelled_job_waits_for_nothing_any_more(node: Puppet) -> None:
    node.submit("a", job_id="one")
    wait(node, "approved")
    node.submit("b", job_id="two", after=AnEvent("approved"))
    node.lanes.cancel("one", why="", by="me")
    node.lanes.cancel("two", why="", by="me")
    assert set_event(node, "approved")[2] == 0
    assert not leftovers(node.store)


def test_a_job_that_would_wait_for_itself_is_refused(node: Puppet) -> None:
    node.submit("a", job_id="one")
    taken = node.must_take()
    node.submit("b", job_id="sub", after="one")
    assert node.park(taken, "sub").verdict == "deadlock"


def test_a_held_cause_has_not_ended_until_an_operator_decides(node: Puppet) -> None:
    for name in ("retried", "cancelled"):
        node.submit(name, job_id=name, on_failure="hold")
        node.finish(node.must_take(), "failed")
        node.submit("b", job_id=f"after {name}", after=name)
        assert state(node, name, f"after {name}") == ["held", "blocked"]
    node.lanes.retry("retried", why="", by="me")
    node.lanes.cancel("cancelled", why="", by="me")
    assert node.order() == ["retried", "after retried"]
    assert state(node, "after cancelled") == ["failed"]


def test_a_retry_of_a_cause_revives_nothing_that_failed_with_it(node: Puppet) -> None:
    node.submit("a", job_id="cause")
    node.submit("b", job_id="last", after="cause")
    node.finish(node.must_take(), "failed")
    node.lanes.retry("cause", why="", by="me")
    assert node.order() == ["cause"]
    assert state(node, "last") == ["failed"]
    node.submit("c", job_id="later", after="cause")
    assert state(node, "later") == ["ready"], "a submit sees how it has ended now"
    node.lanes.retry("last", why="", by="me")
    assert sorted(node.order()) == ["last", "later"], "it waits for nothing any more"


@pytest.mark.parametrize(("losses", "ended"), [(1, "succeeded"), (2, "failed")])
def test_a_cause_that_is_lost_runs_again_and_fails_once_it_was_lost_too_often(
    node: Puppet, losses: int, ended: str
) -> None:
    node.submit("a", job_id="cause", max_losses=1)
    node.submit("b", job_id="last", after="cause")
    for _ in range(losses):
        node.lose(node.must_take())
        assert state(node, "last") == ["blocked" if state(node, "cause") == ["ready"] else "failed"]
    node.order()
    assert state(node, "cause", "last") == [ended, ended]


def test_a_cause_that_is_replaced_fails_those_behind_once_its_process_has_stopped(node: Puppet) -> None:
    node.submit("a", job_id="waits", when_busy="replace")
    taken = node.must_take()
    node.submit("b", job_id="last", after="waits")
    node.submit("a", job_id="new", when_busy="replace")
    assert state(node, "last") == ["blocked"]
    node.lose(taken, "stopped")
    assert state(node, "waits", "last") == ["cancelled", "failed"]
    assert "job waits, which was cancelled" in (node.lanes.job("last").error or {})["message"]
    assert node.order() == ["new"]


def test_a_cause_for_which_jobs_wait_is_dropped_by_no_bound_and_a_dropped_one_is_unknown(node: Puppet) -> None:
    few = {"keep_most": 1, "keep_success": 0.001}
    node.submit("a", job_id="dropped", settings=few)
    node.submit("b", job_id="kept", settings=few)
    node.submit("c", job_id="last", after={"x": "kept"})
    assert node.order() == ["dropped", "kept", "last"]
    node.submit("d", settings=few)
    node.order()
    node.store._client.delete(node.store.key("job", "dropped"))
    with pytest.raises(UnknownJob, match="dropped"):
        node.submit("c", after="dropped")
    assert given(node, "last") is None, "a success keeps none"
    node.submit("c", job_id="later", after={"x": "kept"})
    assert given(node, "later") == {"x": "detail"}
    assert node.order() == ["later"]
