"""Where a job goes on after a rollback, a loss, or a step that replaced another."""

import uuid
from json import loads
from typing import Any

import pytest

from coordinator import InvalidJob
from coordinator.core.jobs.current import Undoing
from coordinator.core.jobs.options import JobDefaults, SubmitOptions, TaskDefault
from coordinator.core.jobs.request import RequestMaker
from coordinator.core.runner.claim import Claim, claim_of
from coordinator.core.runner.runner import undoing_of
from coordinator.core.settings import Settings
from tests.harness.hand_node import Puppet, Taken

UNDO = {"task": "shop.other"}
STEP = '{"task": "shop.other", "args": [%d], "immutable": 1, "class": "shop\\ncelery", "limit": 0}'


def tell(node: Puppet, taken: Taken, outcome: str, detail: str = '"detail"') -> tuple[str, str]:
    """An attempt's end, of any kind; the next step of an order would be `shop.other`."""
    more = ("shop\ncelery", "shop.other", 0) if outcome in ("step", "replaced") else ("", "", "")
    return node.finish(taken, outcome, detail=detail, following=more)[:2]


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
    assert node.lanes.job("j").state == "succeeded"


def test_a_loss_resumes_at_the_step_that_replaced_another_and_a_retry_after_a_rollback_at_the_submitted_one(
    node: Puppet,
) -> None:
    node.submit("a", job_id="j", args=(0,), rollback=UNDO, max_losses=1)
    for number in (1, 2):
        taken, steps = node.must_take(), f"[{STEP % number}, {STEP % 9}]"
        for _ in range(2):  # the answer was lost
            assert tell(node, taken, "replaced", steps) == ("accepted", "ready")
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


def test_a_parked_job_is_looked_at_when_its_time_is_over_and_its_sub_tasks_are_known_for_days(node: Puppet) -> None:
    client, parked = node.store._client, node.store.key("parked", "shop")
    node.submit("a", job_id="j", time_limit=5)
    taken = node.must_take()
    node.store.step("child_began", "j", "child", taken.fence, "one", "a")
    assert client.pttl(node.store.key("begun", "j")) > 86_400_000
    node.park(taken, "child")
    node.store.step("parked_take", "shop", 10_000)
    till, started = map(int, client.hmget(node.store.key("job", "j"), "till", "started"))
    assert client.zscore(parked, "j") == till == started + 5000
    node.lanes.cancel("j")


def test_a_sub_task_belongs_to_the_attempt_that_published_it(node: Puppet) -> None:
    def began(fence: int) -> int:
        return int(node.store.step("child_began", "j", "child", fence, "one", "a"))

    node.submit("a", job_id="j")
    taken = node.must_take()
    assert [began(5), began(5)] == [1, 1]
    node.store.step("children_over", "j", "child")
    assert began(5) == -1, "its attempt ended without it"
    assert began(6) == 1, "a later attempt waits for it again"
    assert began(5) == -1, "the message of the earlier one comes late"
    node.finish(taken)
