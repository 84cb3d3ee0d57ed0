"""The steps of attempts, rollback and holding: asked again they answer the same, and nothing happens twice."""

import uuid
from json import loads
from typing import Any

import pytest

from coordinator import InvalidJob
from coordinator.jobs.current import Undoing
from coordinator.jobs.options import JobDefaults, SubmitOptions, TaskDefault
from coordinator.jobs.request import RequestMaker
from coordinator.runner.claim import Claim, claim_of
from coordinator.runner.runner import undoing_of
from coordinator.settings import Settings
from tests.harness.hand_node import Puppet, Taken

UNDO = {"task": "shop.other"}
HOUR = 3_600_000


STEP = '{"task": "shop.other", "args": [%d], "immutable": 1, "class": "shop\\ncelery", "limit": 0}'


def tell(node: Puppet, taken: Taken, outcome: str, detail: str = '"detail"') -> tuple[str, str]:
    """An attempt's end, of any kind; the next step of an order would be `shop.other`."""
    more = ("shop\ncelery", "shop.other", 0) if outcome in ("step", "replaced") else ("", "", "")
    if outcome == "replaced" and detail == '"detail"':
        detail = f"[{STEP % 1}]"
    return node.finish(taken, outcome, delay=HOUR, detail=detail, following=more)[:2]


def state_of(node: Puppet) -> str:
    return node.lanes.job("j").state


def end(node: Puppet) -> None:
    while not node.lanes.job("j").over:
        node.lanes.cancel("j")
        node.order()
    node.order()
    node.store.step("parked_take", "shop", 10)


@pytest.mark.parametrize(
    ("outcome", "options", "state"),
    [
        ("raised", {"max_attempts": 2}, "retrying"),
        ("conflict", {}, "retrying"),
        ("parked", {}, "parked"),
        ("step", {}, "ready"),
        ("replaced", {}, "ready"),
        ("failed", {"on_failure": "hold"}, "held"),
        ("failed", {"rollback": UNDO}, "rolling_back"),
        ("raised", {"rollback": UNDO, "on_failure": "hold"}, "rolling_back"),
        ("failed", {}, "failed"),
    ],
)
def test_an_end_told_again_is_answered_the_same_and_counted_once(
    node: Puppet, outcome: str, options: Any, state: str
) -> None:
    node.submit("a", job_id="j", **options)
    taken = node.must_take()
    assert tell(node, taken, outcome) == ("accepted", state)
    counts, ready = node.lanes.counts(), node.ready()
    for other in (outcome, "succeeded"):
        assert tell(node, taken, other) == ("accepted", state)
        assert (node.lose(taken), node.renew(taken)) == ("", [False])
    assert state_of(node) == state
    assert node.lanes.counts() == counts
    assert node.ready() == ready
    end(node)


@pytest.mark.parametrize("state", ["held", "retrying", "failed", "rolled_back"])
def test_an_operators_retry_given_twice_is_one_more_run(node: Puppet, state: str) -> None:
    options: Any = {"held": {"on_failure": "hold"}, "retrying": {"max_attempts": 2}, "rolled_back": {"rollback": UNDO}}
    node.submit("a", job_id="j", **options.get(state, {}))
    tell(node, node.must_take(), "raised")
    if state == "rolled_back":
        tell(node, node.must_take(), "succeeded")
    assert state_of(node) == state
    assert [node.lanes.retry("j", why="again") for _ in range(2)] == ["ready", "ready"]
    taken = node.must_take()
    assert node.take() is None
    assert node.lanes.job("j").task == "shop.work"
    tell(node, taken, "succeeded")
    assert (state_of(node), node.lanes.counts()["created"], node.lanes.counts()["succeeded"]) == ("succeeded", 1, 1)
    assert node.lanes.retry("j", why="again") == "succeeded"


@pytest.mark.parametrize("outcome", ["succeeded", "raised"])
@pytest.mark.parametrize("decision", ["retry", "cancel", "release", "expiry"])
def test_a_job_held_after_its_rollback_can_be_decided_upon(node: Puppet, outcome: str, decision: str) -> None:
    node.submit("a", job_id="j", rollback=UNDO, on_failure="hold")
    node.submit("a", job_id="next")
    tell(node, node.must_take(), "failed")
    tell(node, node.must_take(), outcome)
    job = node.lanes.job("j")
    assert (job.state, job.rollback, job.waited_for) == ("held", "done" if outcome == "succeeded" else "failed", True)
    assert node.take() is None
    if decision == "retry":
        assert node.lanes.retry("j", why="mended") == "ready"
        assert tell(node, node.must_take(), "succeeded") == ("accepted", "succeeded")
    elif decision == "cancel":
        assert node.lanes.cancel("j", why="given up") == "cancelled"
    elif decision == "release":
        assert node.lanes.release("a", why="given up") == "j"
    else:
        node.store._client.zadd(node.store.key("expiry"), {"j": 1}, xx=True)
        node.sweep()
    assert node.order() == ["next"]
    assert state_of(node) == {"retry": "succeeded", "expiry": "expired"}.get(decision, "cancelled")
    counts = node.lanes.counts()
    assert (counts["held"], counts["rolling_back"], counts["waiting"]) == (0, 0, 0)


def test_a_map_as_a_rollback_is_refused_by_name(node: Puppet) -> None:
    with pytest.raises(InvalidJob, match="rollback: a xmap cannot be run there"):
        node.submit("a", rollback={"task": "celery.map", "subtask_type": "xmap"})


@pytest.mark.parametrize("well", [True, False])
@pytest.mark.parametrize("on_failure", ["release", "hold"])
def test_an_order_that_was_undone_begins_again_at_its_first_step_and_else_goes_on_at_its_own(
    node: Puppet, on_failure: str, well: bool
) -> None:
    steps = [{"task": task, "options": {"time_limit": limit}} for task, limit in (("shop.work", 5), ("shop.other", 7))]
    order = {"task": "celery.chain", "subtask_type": "chain", "kwargs": {"tasks": steps}}
    wanted = SubmitOptions(job_id="j", rollback=UNDO, on_failure=on_failure)
    target = JobDefaults("shop", lambda step: TaskDefault("celery"))
    node.lanes.submit(RequestMaker(Settings.load({}, {}, {}), target).make("a", order, wanted))
    tell(node, node.must_take(), "step")
    tell(node, node.must_take(), "failed")
    tell(node, node.must_take(), "succeeded" if well else "failed")
    assert (node.lanes.job("j").step, node.lanes.job("j").rollback) == (1, "done" if well else "failed")
    node.lanes.retry("j", why="mended")
    record: Any = node.store._client.hgetall(node.store.key("job", "j"))
    found = node.lanes.job("j")
    limit = record[b"limits"].split()[2]
    expected = (0, "shop.work", b"5000") if well else (1, "shop.other", b"0")
    assert (found.step, found.task, limit) == expected
    assert (b"value" in record) is not well
    tell(node, node.must_take(), "succeeded")
    assert state_of(node) == "succeeded"


def test_a_loss_resumes_at_the_step_that_replaced_another_and_a_retry_after_a_rollback_at_the_submitted_one(
    node: Puppet,
) -> None:
    node.submit("a", job_id="j", args=(0,), rollback=UNDO, max_losses=1)
    for number in (1, 2):
        steps = f"[{STEP % number}, {STEP % 9}]"
        assert tell(node, node.must_take(), "replaced", steps) == ("accepted", "ready")
    assert node.lose(node.must_take()) == "ready"
    again = take_claim(node)
    assert (again.task, again.args, again.nth, again.tries, again.losses) == ("shop.other", (2,), 2, 0, 1)
    assert again.following == loads(STEP % 9)
    assert node.lanes.job("j").args == (2,)
    assert tell(node, taken_of(again), "failed") == ("accepted", "rolling_back")
    undo = take_claim(node)
    assert undoing_of(undo) == Undoing((2,), {}, undo.error, None)
    assert tell(node, taken_of(undo), "succeeded") == ("accepted", "rolled_back")
    node.lanes.retry("j", why="mended")
    anew = take_claim(node)
    assert (anew.task, anew.args, anew.step, anew.following, anew.tries) == ("shop.work", (0,), 0, None, 0)


def take_claim(node: Puppet) -> Claim:
    """As a runner of its own gets it."""
    token = f"token-of-{uuid.uuid4().hex}"
    node.store._client.zadd(node.store.key("rung", node.name), {token: 2**53})
    given = node.store.step("runner_take", node.name, node.incarnation, token, token, token, node.ttl)
    return claim_of(given, token)


def taken_of(claim: Claim) -> Taken:
    return Taken(claim.id, claim.token, claim.token, claim.attempt, claim.losses, claim.fence)
