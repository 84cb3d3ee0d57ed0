"""The steps of a rollback: it is what a job may be, holds its lane until it ended, and not for ever."""

from typing import Any

import pytest
from celery import Celery
from kombu.utils.json import loads

from coordinator import Coordinator
from coordinator.core.jobs.options import JobDefaults, SubmitOptions, TaskDefault
from coordinator.core.jobs.request import RequestMaker
from coordinator.core.maintenance.parked import Parked
from coordinator.core.runner.claim import claim_of
from coordinator.core.runner.runner import undoing_of
from coordinator.core.runner.verdict import End, verdict
from coordinator.core.settings import Settings
from tests.harness.hand_node import Puppet

CHAIN = {
    "task": "celery.chain",
    "subtask_type": "chain",
    "kwargs": {"tasks": [{"task": "shop.other"}, {"task": "shop.work", "options": {"time_limit": 7}}]},
}
NOWHERE = {"task": "shop.other", "options": {"queue": "nowhere"}}


def to_be_rolled_back(node: Puppet, **options: object) -> None:
    """The job `j` has failed, and no node serves the queue of its rollback; `next` stands behind it."""
    node.submit("a", job_id="j", rollback=NOWHERE, max_lifetime=3600, **options)
    node.submit("a", job_id="next")
    assert node.finish(node.must_take(), "failed").state == "rolling_back"
    assert node.take() is None


def test_a_plan_names_a_job_that_is_rolling_back_so(node: Puppet, coordinator: Coordinator) -> None:
    to_be_rolled_back(node)
    [hit] = coordinator.plan.cancel("j").hits
    assert (hit.thing, hit.state) == ("job j", "rolling_back")
    assert coordinator.cancel("j", why="a test") == hit.becomes


def test_a_rollback_that_nobody_can_run_is_a_double_fault_after_its_lifetime(node: Puppet) -> None:
    to_be_rolled_back(node)
    client, expiry = node.store._client, node.store.key("expiry")
    seconds, _ = client.time()
    assert 3500 < (client.zscore(expiry, "j") or 0) / 1000 - seconds < 3700
    node.sweep()
    assert node.lanes.job("j").state == "rolling_back"
    client.zadd(expiry, {"j": 1})
    node.sweep()
    job = node.lanes.job("j")
    assert (job.state, job.rollback, (job.fault or {})["message"]) == ("double_fault", "failed", "max_lifetime is over")
    assert node.lanes.counts()["faults"] == 1
    assert node.order() == ["next"]


class Backend:
    """Knows how the sub-tasks ended: SUCCESS or FAILURE."""

    def __init__(self) -> None:
        self.ended: dict[str, str] = {}

    def get_task_meta(self, task_id: str) -> dict[str, Any]:
        return {"status": self.ended.get(task_id, "PENDING"), "result": f"of {task_id}"}


class Undone:
    """The job `j` has failed; its rollback has parked on the sub-tasks `a` and `b`, and `next` stands behind it."""

    def __init__(self, node: Puppet, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        app, self.backend, self.stopped = Celery("shop", set_as_current=False), Backend(), list[str]()
        monkeypatch.setattr(type(app), "backend", self.backend)
        monkeypatch.setattr(app.control, "revoke", lambda ids, terminate: self.stopped.extend(ids))
        self.node, self.looks = node, Parked(node.lanes, app)
        node.submit("a", job_id="j", **({"rollback": {"task": "shop.other"}} | options))
        node.submit("a", job_id="next")
        node.finish(node.must_take(), "failed")
        undo, client = node.must_take(), node.store._client
        client.hset(node.store.key("job", "j"), "taken", 1)  # long ago
        client.zrem(node.store.key("expiry"), "j")  # the sweep took it away while the rollback ran
        assert node.park(undo, "a", "b").state == "parked"

    def look(self) -> str:
        self.node.store._client.zadd(self.node.store.key("parked", "shop"), {"j": 1}, xx=True)
        self.looks.step()
        return self.node.lanes.job("j").state

    def end(self, **ends: str) -> str:
        self.backend.ended |= ends
        return self.look()


def test_a_sub_task_of_a_rollback_that_fails_is_a_double_fault(node: Puppet, monkeypatch: pytest.MonkeyPatch) -> None:
    undone = Undone(node, monkeypatch, max_attempts=9)
    assert undone.end(a="SUCCESS", b="FAILURE") == "double_fault"
    job = node.lanes.job("j")
    assert (job.rollback, (job.fault or {})["type"]) == ("failed", "SubResultFailed")
    [trouble] = node.store.read("ZRANGE", node.store.key("troubles", "shop"), 0, -1)
    assert trouble.startswith(b"double_fault ")
    assert node.order() == ["next"]


def test_a_sub_task_of_a_rollback_that_dies_with_its_node_is_a_double_fault(
    node: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    undone, far = Undone(node, monkeypatch), Puppet(node.store, "far")
    far.up(tasks=())
    node.store.step("child_began", "j", "a", 1, "far", "a")
    assert undone.end(b="SUCCESS") == "rolling_back"
    far.nodes.leave("far", "a")
    assert undone.look() == "double_fault"
    assert node.lanes.counts()["losses"] == 0


def test_a_parked_rollback_ends_with_its_lifetime_and_its_sub_tasks_are_stopped(
    node: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    undone, (client, expiry) = (
        Undone(node, monkeypatch, max_lifetime=3600),
        (node.store._client, node.store.key("expiry")),
    )
    started = node.lanes.job("j").started
    assert started
    assert abs((client.zscore(expiry, "j") or 0) / 1000 - started.timestamp() - 3600) < 60
    client.zadd(expiry, {"j": 1})
    node.sweep()
    assert undone.look() == "double_fault"
    assert undone.stopped == ["a", "b"]
    assert node.order() == ["next"]


def test_the_sub_tasks_of_a_parked_rollback_are_stopped_when_its_lane_is_released(
    node: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    undone = Undone(node, monkeypatch)
    assert node.lanes.cancel("j") == "rolling_back"
    assert node.lanes.release("a", why="it hangs") == "j"
    assert (undone.look(), undone.stopped) == ("cancelled", ["a", "b"])
    assert node.order() == ["next"]


def test_the_sub_results_of_the_last_attempt_are_stopped_though_the_rollback_parks_too(
    node: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, stopped = Celery("shop", set_as_current=False), list[str]()
    monkeypatch.setattr(type(app), "backend", Backend())
    monkeypatch.setattr(app.control, "revoke", lambda ids, terminate: stopped.extend(ids))
    node.submit("a", job_id="j", rollback={"task": "shop.other"})
    node.park(node.must_take(), "old")
    assert node.lanes.cancel("j") == "rolling_back"
    node.park(node.must_take(), "new")
    Parked(node.lanes, app).step()
    assert stopped == ["old"]
    assert node.lanes.job("j").state == "rolling_back"


def test_a_rollback_may_be_a_chain_and_each_of_its_steps_is_begun_once(node: Puppet) -> None:
    node.submit("a", job_id="j", rollback=CHAIN)
    node.submit("a", job_id="next")
    node.finish(node.must_take(), "failed")
    step = node.lanes.spec("j")["rollback"]["steps"][1]
    following = (step["class"], step["task"], step["limit"])
    first = node.must_take()
    for _ in range(2):
        assert node.finish(first, "step", detail='"undone so far"', following=following).state == "ready"
    assert (node.lanes.job("j").state, node.lanes.job("j").task) == ("rolling_back", "shop.work")
    assert node.lanes.cancel("j") == "rolling_back", "it has begun"
    second = node.must_take()
    limits = [int(entry.split()[1]) for entry in node.work().values()]
    assert len(limits) == 1
    assert limits[0] > 0, "the time limit is that of the step"
    assert node.finish(second).state == "rolled_back"
    job = node.lanes.job("j")
    assert (job.task, job.rollback, job.attempt) == ("shop.work", "done", 3)
    assert node.order() == ["next"]


def test_a_rollback_is_given_the_results_of_all_steps_before_and_how_the_last_sub_results_ended(
    node: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, backend = Celery("shop", set_as_current=False), Backend()
    monkeypatch.setattr(type(app), "backend", backend)
    steps = {"task": "celery.chain", "subtask_type": "chain", "kwargs": {"tasks": [{"task": "shop.work"}] * 3}}
    target = JobDefaults("shop", lambda step: TaskDefault("celery"))
    wanted = SubmitOptions(rollback={"task": "shop.other"})
    node.lanes.submit(RequestMaker(Settings(url="redis://-"), target).make("a", steps, wanted))
    for value in ("1", '{"two": 2}'):
        node.finish(node.must_take(), "step", detail=value, following=("shop\ncelery", "shop.work", 0))
    node.park(node.must_take(), "good", "bad")
    backend.ended |= {"good": "SUCCESS", "bad": "FAILURE"}
    Parked(node.lanes, app).step()
    bell = "by-hand"
    node.store._client.zadd(node.store.key("rung", "one"), {bell: 2**53})
    claim = claim_of(node.store.step("runner_take", "one", "a", "r", bell, "t", node.ttl), "t")
    undoing = undoing_of(claim)
    assert undoing
    assert (undoing.results, undoing.result) == ((1, {"two": 2}), {"two": 2})
    assert undoing.error
    good, bad = undoing.error["parts"]
    assert good == {"id": "good", "result": "of good"}
    assert (bad["id"], bad["error"]["message"]) == ("bad", "of bad")


@pytest.mark.parametrize(
    ("most", "parts"),
    [
        (10_000, [{"id": "a", "result": "x" * 999}, {"id": "b", "error": {"type": "Cancelled", "message": "why"}}]),
        (900, [{"id": "a"}, {"id": "b", "error": {"type": "Cancelled", "message": "why"}}]),
        (100, None),
    ],
)
def test_how_sub_results_ended_is_told_as_far_as_it_fits(most: int, parts: Any) -> None:
    ends = [End(True, "x" * 999), End(False, {"type": "Cancelled", "message": "why", "traceback": "…"})]
    kind, detail = verdict({"ids": ["a", "b"], "one": False}, ends, most)
    assert (kind, loads(detail).get("parts")) == ("raised", parts)
