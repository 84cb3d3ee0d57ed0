"""What a plan says of the jobs that are to run after those that an act ends, and what the act then does."""

from datetime import UTC, datetime, timedelta

import pytest

from coordinator import Coordinator
from coordinator.ops.verbs import downstream
from coordinator.ops.verbs.plan import Plan
from tests.harness.command import Call, told
from tests.harness.hand_node import Puppet, sketch


def states(node: Puppet, *job_ids: str) -> list[str]:
    return [node.lanes.job(job_id).state for job_id in job_ids]


def tree(node: Puppet) -> None:
    """A cause with a chain of three that fail with it, two that it holds, and two that run all the same."""
    node.submit("a", job_id="cause")
    for number, before in ((1, "cause"), (2, "fails 1"), (3, "fails 2")):
        node.submit(f"b/{number}", job_id=f"fails {number}", after=before)
    for number in (1, 2):
        node.submit(f"c/{number}", job_id=f"held {number}", after="cause", on_failure_of="hold")
        node.submit(f"d/{number}", job_id=f"runs {number}", after="cause", on_failure_of="run")
    node.submit("e", job_id="behind one that is held", after="held 1")
    node.submit("e", job_id="waits on", after=["cause", "held 2"], on_failure_of="run")


def hold_against(node: Puppet, plan: Plan) -> None:
    assert (plan.dependants, plan.all_dependants) == ({"failed": 3, "held": 2, "goes on": 2}, True)
    assert set(plan.starts) == {"runs 1", "runs 2"}


def hold_after(node: Puppet) -> None:
    assert states(node, *(f"fails {number}" for number in (1, 2, 3))) == ["failed"] * 3
    assert states(node, "held 1", "held 2", "runs 1", "runs 2") == ["held", "held", "ready", "ready"]
    assert states(node, "behind one that is held", "waits on") == ["blocked", "blocked"]


def test_a_plan_of_a_cancel_counts_down_the_graph_and_the_act_does_it(
    node: Puppet, coordinator: Coordinator, call: Call
) -> None:
    tree(node)
    hold_against(node, coordinator.plan.cancel("cause"))
    hold_against(node, coordinator.plan.act("cancel", key="a"))
    shown = told(call("cancel", "cause", "--dry-run", "--why", "x"))
    assert "of the jobs that are to run after these: 3 fail, 2 are held, 2 go on without" in shown
    coordinator.cancel("cause")
    hold_after(node)
    for job_id in ("held 1", "held 2"):
        coordinator.cancel(job_id)
    assert sorted(node.order()) == ["runs 1", "runs 2", "waits on"]


def test_a_plan_of_a_release_and_of_a_stop_counts_them_too(node: Puppet, coordinator: Coordinator) -> None:
    tree(node)
    node.must_take()
    plan = coordinator.plan.cancel("cause")
    assert [hit.becomes for hit in plan.hits] == ["stopping"]
    hold_against(node, plan)
    hold_against(node, coordinator.plan.release("a"))
    coordinator.release("a")
    hold_after(node)


def test_a_retry_says_how_many_wait_for_it_again(node: Puppet, coordinator: Coordinator) -> None:
    tree(node)
    node.finish(node.must_take(), "failed")
    plan = coordinator.plan.retry("cause")
    assert (plan.dependants, coordinator.plan.cancel("cause").count) == ({"wait again": 2}, 0)
    coordinator.retry("cause")
    assert states(node, "held 1", "held 2") == ["held", "held"]
    node.order()
    assert states(node, "held 1", "held 2") == ["succeeded", "succeeded"]


@pytest.mark.parametrize("case", ["free", "busy", "behind", "later", "paused", "quota"])
def test_a_retry_of_a_job_that_a_cause_holds_is_planned_as_it_happens(
    node: Puppet, coordinator: Coordinator, case: str
) -> None:
    node.submit("a", job_id="cause")
    coordinator.quota("q", concurrency=1)
    if case == "busy":
        node.submit("b", job_id="before")
    own = {"not_before": datetime.now(UTC) + timedelta(hours=1)} if case == "later" else {}
    own |= {"uses": "q"} if case == "quota" else {}
    node.submit("b", job_id="held", after="cause", on_failure_of="hold", **own)
    if case == "behind":
        node.submit("b", job_id="after it", not_before=datetime.now(UTC) + timedelta(hours=1))
    if case == "quota":
        node.submit("z", job_id="user", uses="q")
    node.lanes.cancel("cause")
    if case in ("busy", "quota"):
        node.must_take()
    if case == "paused":
        coordinator.pause("b")
    plan = coordinator.plan.retry("held")
    became = coordinator.retry("held")
    expected = {"busy": "waiting", "paused": "waiting", "later": "scheduled", "quota": "waiting"}.get(case, "ready")
    assert [(hit.state, hit.becomes) for hit in plan.hits] == [("held", became)]
    assert (became, plan.starts) == (expected, ("held",) * (expected == "ready"))


def test_a_plan_of_a_large_graph_counts_so_many_and_says_that_there_may_be_more(
    node: Puppet, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.setattr(downstream, "COUNTS", 60.0)  # a busy machine
    node.submit("a", job_id="cause")
    node.lanes.submit_many(sketch("b", job_id=f"{n}", after=[f"{n - 1}" if n % 100 else "cause"]) for n in range(1000))
    assert coordinator.plan.cancel("cause").dependants == {"failed": 1000}
    monkeypatch.setattr(downstream, "MOST", 100)
    plan = coordinator.plan.cancel("cause")
    assert (100 <= plan.dependants["failed"] < 1000, plan.all_dependants) == (True, False)
    assert f"at least {plan.dependants['failed']} fail" in told(call("cancel", "cause", "--dry-run", "--why", "x"))


def test_a_blocked_job_is_moved_and_its_plan_says_so(node: Puppet, coordinator: Coordinator) -> None:
    node.submit("a", job_id="cause")
    node.submit("b", job_id="before")
    for name in ("first", "second"):
        node.submit("b", job_id=name, after="cause")
    plan = coordinator.plan.move("second", to="front")
    assert [(hit.state, hit.becomes) for hit in plan.hits] == [("blocked", "front of priority 0")]
    assert coordinator.move("second", to="front") == "blocked"
    ends = {one.id: one for one in node.take_all()}
    node.finish(ends["cause"])
    node.finish(ends["before"])
    assert node.order() == ["second", "first"]
