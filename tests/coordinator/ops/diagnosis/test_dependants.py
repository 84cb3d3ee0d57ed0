"""Why a job waits that is to run after others."""

import json

import pytest

from coordinator import Coordinator
from tests.coordinator.ops.diagnosis.test_why import texts
from tests.harness.command import Call, told
from tests.harness.hand_node import Puppet


def test_a_blocked_job_leads_to_its_causes_and_their_own_roots(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("a", job_id="root")
    node.must_take()
    node.submit("a", job_id="behind")
    coordinator.pause("b")
    node.submit("b", job_id="paused")
    node.submit("c", job_id="middle", after=["behind", "paused"])
    node.submit("d", job_id="last", after={"part": "middle"})
    why = coordinator.why("last")
    first, second, third, fourth, root = texts(why)
    assert why.sentence == f"{fourth}. {first}. {root}."
    assert first == "last is to run after others, 1 of 1 not over: middle"
    assert second == "middle is to run after others, 2 of 2 not over: behind, paused"
    assert third == "behind is second in lane a, behind root"
    assert fourth.startswith("Lane b is paused")
    assert root.startswith("root runs on node one")
    assert why.codes == ["blocked", "waiting.lane", "waiting.paused", "running.job"]
    assert list(why.so_far) in ([], ["blocked"])


def test_an_event_that_nobody_has_set_is_a_root(node: Puppet, coordinator: Coordinator) -> None:
    for number in range(130):
        node.submit(f"a/{number}", job_id=f"{number:03}", after=coordinator.event("approved/42"))
    why = coordinator.why("129")
    assert texts(why) == [
        "129 is to run after others, 1 of 1 not over; events not set: approved/42",
        "Event approved/42 is not set; 130 jobs waiting for it",
    ]
    coordinator.event("approved/42").set({"by": "me"}, by="ann", why="looks fine")
    still = coordinator.why("129")
    assert still.codes == ["blocked", "event.set"]
    assert texts(still)[1].endswith(" by ann; 30 jobs still to be told")
    node.sweep()
    assert len(node.order()) == 130


def test_a_running_job_that_waits_for_an_event_says_which_and_until_when(
    node: Puppet, coordinator: Coordinator
) -> None:
    node.submit("a", job_id="j")
    detail = {"event": "paid", "timeout": 60_000, "steps": '[{"task": "shop.other"}]', "else": ""}
    node.finish(node.must_take(), "awaits", detail=json.dumps(detail), following=("shop\ncelery", "shop.other", 0))
    parked, event = texts(coordinator.why("j"))
    assert parked.startswith("j is parked until the event paid is set, until 20")
    assert event == "Event paid is not set; 1 job waiting for it"
    coordinator.cancel("j")


def test_a_job_that_a_cause_holds_names_it_and_both_ways_out(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("a", job_id="cause")
    node.submit("a", job_id="open")
    node.submit("b", job_id="last", after=["open", "cause"], on_failure_of="hold")
    node.finish(node.must_take(), "failed", detail='{"type": "ValueError", "message": "no"}')
    held, over = coordinator.why("last").causes
    assert (held.code, held.of, held.frees) == ("held.cause", ("job cause",), "coordinator retry cause --why …")
    assert held.text.startswith("last waits for you: it was to run after cause, without success. It goes on")
    assert over.text == "cause failed: ValueError: no"
    coordinator.cancel("last")


def test_a_job_that_is_held_since_its_cause_is_gone_may_run_without_it(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("a", job_id="cause")
    node.submit("b", job_id="last", after="cause", on_failure_of="hold")
    node.store._client.delete(node.store.key("job", "cause"))
    node.sweep()
    [held] = coordinator.why("last").causes
    assert (held.code, held.facts["failed"]) == ("held.cause", ["cause"])
    assert held.frees == "coordinator retry last --why …"
    assert coordinator.retry("last") == "ready"


def test_a_job_that_failed_with_its_causes_leads_to_the_first_of_them(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("a", job_id="root")
    node.submit("b", job_id="middle", after="root")
    node.submit("c", job_id="last", after=["middle"])
    node.finish(node.must_take(), "failed", detail='{"type": "ValueError", "message": "no"}')
    why = coordinator.why("last")
    assert [cause.of for cause in why.causes] == [("job middle",), ("job root",), ()]
    assert why.sentence.endswith(" root failed: ValueError: no.")
    assert why.causes[-1].frees == "coordinator retry root --why …"


def test_all_that_is_blocked_is_counted(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("a", job_id="cause")
    for key in "bc":
        node.submit(key, job_id=key, after="cause")
    counts = {row.code: (row.count, row.text) for row in coordinator.why_summary().rows}
    assert counts["blocked"] == (2, "are to run after other jobs or events")
    assert node.order() == ["cause", "b", "c"]


def test_doctor_finds_a_job_counted_as_blocked_that_is_over(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("a", job_id="done")
    node.order()
    node.store._client.sadd(node.store.key("state", "blocked"), "done")
    found = [one for one in coordinator.doctor() if one.code == "index.ghost"]
    assert [one.message for one in found] == ["it is counted as blocked, but has ended or has no record"]
    node.store._client.delete(node.store.key("state", "blocked"))


@pytest.mark.parametrize("key", [None, "b", "b*"])
def test_jobs_in_no_line_yet_are_found_once(node: Puppet, coordinator: Coordinator, key: str | None) -> None:
    node.submit("a", job_id="bad")
    node.submit("b", job_id="held", after="bad", on_failure_of="hold")
    node.submit("b", job_id="blocked", after=coordinator.event("e"))
    node.finish(node.must_take(), "failed")
    node.submit("b", job_id="held in line", on_failure="hold")
    node.finish(node.must_take(), "failed")
    node.submit("b", job_id="waiting")
    found = [(job.id, job.state) for job in coordinator.jobs(state=["held", "blocked", "waiting"], key=key).jobs]
    assert sorted(found) == [
        ("blocked", "blocked"), ("held", "held"), ("held in line", "held"), ("waiting", "waiting"),
    ]  # fmt: skip
    assert [job.id for job in coordinator.jobs(state="held", key=key).jobs] == ["held", "held in line"]
    for job_id in ("held", "blocked", "held in line", "waiting"):
        coordinator.cancel(job_id)


def test_a_record_says_what_it_waits_for_and_what_waits_for_it(
    node: Puppet, coordinator: Coordinator, call: Call
) -> None:
    node.submit("a", job_id="cause")
    node.submit("b", job_id="other")
    node.submit("c", job_id="last", after={"part": "cause", "more": coordinator.event("e"), "x": "other"})
    node.lanes.cancel("other")  # its dependant fails at once, and leaves what it waited for
    node.submit("c", job_id="next", after={"part": "cause", "more": coordinator.event("e")}, on_failure_of="run")
    job, cause = coordinator.job("next"), coordinator.job("cause")
    assert [(wait.job_id, wait.event, wait.argument, wait.open) for wait in job.after] == [
        ("cause", "", "part", True), ("", "e", "more", True),
    ]  # fmt: skip
    assert (job.on_failure_of, cause.dependants, cause.dependants_count) == ("run", ("next",), 1)
    assert [wait.open for wait in coordinator.job("last").after] == [False] * 3
    assert "job cause as part, open" in told(call("job", "next"))
    assert "dependants" in told(call("job", "cause"))
    node.finish(node.must_take())
    assert [wait.open for wait in coordinator.job("next").after] == [False, True]
    assert [job.dependants for job in coordinator.jobs(state="succeeded").jobs] == [()]
    coordinator.cancel("next")


def test_a_job_that_ran_after_its_causes_and_failed_itself_is_held_for_its_own_error(
    node: Puppet, coordinator: Coordinator
) -> None:
    node.submit("a", job_id="cause")
    node.submit("b", job_id="last", after="cause", on_failure_of="run", on_failure="hold")
    for _ in range(2):
        node.finish(node.must_take(), "failed", detail='{"type": "ValueError", "message": "its own"}')
    [held] = coordinator.why("last").causes
    assert (held.code, held.facts["error"]) == ("held", "ValueError: its own")
    coordinator.cancel("last")


def test_a_cause_that_had_failed_before_lists_those_that_it_holds(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("a", job_id="cause")
    node.finish(node.must_take(), "failed")
    node.submit("b", job_id="last", after="cause", on_failure_of="hold")
    assert coordinator.job("cause").dependants == ("last",)
    coordinator.cancel("last")
    assert coordinator.job("cause").dependants_count == 0
