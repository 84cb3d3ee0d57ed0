"""Parked jobs whose sub-tasks end without a word."""

from typing import Any, NamedTuple

import pytest
from celery import Celery

from coordinator.core.maintenance.parked import Parked
from tests.harness.hand_node import Puppet


def test_an_end_that_nobody_tells_is_seen_by_the_slow_look(node: Puppet) -> None:
    app, client = Celery("shop", backend="cache+memory://"), node.store._client
    looks, parked = Parked(node.lanes, app), node.store.key("parked", "shop")
    node.submit("a", job_id="parent")
    node.park(node.must_take(), "child", one=True)
    looks.step()  # once after parking
    now: Any = client.time()
    assert 8 < (client.zscore(parked, "parent") or 0) / 1000 - now[0] < 11
    app.backend.store_result("child", 3, "SUCCESS")
    looks.step()
    assert node.lanes.job("parent").state == "parked", "it is not asked for at each step"
    client.zadd(parked, {"parent": 1}, xx=True)
    looks.step()
    job = node.lanes.job("parent")
    assert (job.state, job.result) == ("succeeded", 3)


class Backend:
    """Without `mget`; it knows the states that a test says, and which tasks it was asked for."""

    def __init__(self) -> None:
        self.status: dict[str, str] = {}
        self.asked: list[str] = []

    def get_task_meta(self, task_id: str) -> dict[str, Any]:
        self.asked.append(task_id)
        return {"status": self.status.get(task_id, "PENDING"), "result": 1}


def test_a_look_at_a_job_with_many_sub_results_asks_for_what_is_new(
    node: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.core.maintenance.parked._TOGETHER", 10)
    backend, app = Backend(), Celery("shop", set_as_current=False)
    monkeypatch.setattr(type(app), "backend", backend)
    looks, ids = Parked(node.lanes, app), [f"c{number:03}" for number in range(100)]
    node.submit("a", job_id="parent")
    node.park(node.must_take(), *ids)
    for number in range(100):
        backend.status[ids[number]] = "SUCCESS"
        node.store.step("child_ended", "parent", ids[number])
        looks.step()
    assert node.lanes.job("parent").result == [1] * 100
    assert len(backend.asked) < 100 * 10 + 100 + 100, "each look asks for one portion, the last one for all"


class OnTwo(NamedTuple):
    """A job that is parked on the sub-tasks `a` and `b`, each begun on the node `far`, which another may outlive."""

    node: Puppet
    far: Puppet
    looks: Parked
    backend: Backend

    def look(self) -> str:
        self.node.store._client.zadd(self.node.store.key("parked", "shop"), {"parent": 1}, xx=True)
        self.looks.step()
        return self.node.lanes.job("parent").state


@pytest.fixture
def parked_on_two(node: Puppet, monkeypatch: pytest.MonkeyPatch) -> OnTwo:
    app, backend = Celery("shop", set_as_current=False), Backend()
    monkeypatch.setattr(type(app), "backend", backend)
    node.submit("k", job_id="parent", max_losses=1)
    parent = node.must_take()
    far = Puppet(node.store, "far")
    far.up(tasks=())
    for child in ("a", "b"):
        node.store.step("child_began", "parent", child, parent.fence, "far", "a")
    node.park(parent, "a", "b")
    return OnTwo(node, far, Parked(node.lanes, app), backend)


def test_a_sub_task_that_dies_with_its_node_is_a_loss_of_the_job_once_nothing_else_of_it_runs(
    parked_on_two: OnTwo,
) -> None:
    node, far, _, backend = parked_on_two
    fence = node.lanes.job("parent").fence or 0
    assert parked_on_two.look() == "parked", "its node lives"
    node.store.step("child_began", "parent", "b", fence, "one", "a")
    far.nodes.leave("far", "a")
    assert parked_on_two.look() == "parked", "the other one runs"
    backend.status["b"] = "SUCCESS"
    assert parked_on_two.look() == "ready"
    job = node.lanes.job("parent")
    assert (job.losses, node.lanes.counts()["losses"]) == (1, 1)
    again = node.must_take()
    assert (again.id, again.attempt) == ("parent", 2)

    def begin(child: str, fence: int) -> int:
        return int(node.store.step("child_began", "parent", child, fence, "one", "a"))

    for _ in range(2):
        assert begin("a", fence) == -1, "its message comes again, and its attempt is over"
        node.store.step("child_ended", "parent", "a")
    assert begin("b", fence) == 1, "nobody ended the attempt for its sake"
    assert begin("a", again.fence) == 1, "an id that the next attempt uses again"
    assert begin("a", fence) == -1
    node.finish(again)


def test_one_loss_too_many_of_sub_tasks_ends_the_job_with_the_cause(parked_on_two: OnTwo) -> None:
    node, far, _, _ = parked_on_two
    node.store._client.hset(node.store.key("job", "parent"), "losses", 1)
    far.nodes.leave("far", "a")
    assert parked_on_two.look() == "failed"
    error = node.lanes.job("parent").error
    assert error
    assert (error["type"], error["message"].split(",")[0]) == (
        "SubResultLost",
        "2 of 2 sub-results were lost with their nodes",
    )


@pytest.mark.parametrize("status", ["SUCCESS", "FAILURE", "RETRY"])
def test_a_sub_task_of_a_dead_node_that_ended_or_is_sent_again_is_not_lost(parked_on_two: OnTwo, status: str) -> None:
    parked_on_two.far.nodes.leave("far", "a")
    parked_on_two.backend.status |= {"a": status, "b": "RETRY"}
    assert parked_on_two.look() == "parked"
    parked_on_two.node.lanes.cancel("parent", why="", by="")


@pytest.mark.parametrize("how", ["ended", "unknown", "same life", "another life"])
def test_only_a_life_of_a_worker_that_is_over_for_certain_loses_its_sub_tasks(parked_on_two: OnTwo, how: str) -> None:
    node, far, _, _ = parked_on_two
    far.nodes.leave("far", "a")
    if how == "ended":
        node.store.step("child_ended", "parent", "a")
    elif how == "unknown":
        node.store._client.delete(node.store.key("gone", "far"))
    else:
        far.up(incarnation="a" if how == "same life" else "b")
    assert parked_on_two.look() == ("ready" if how == "another life" else "parked")
    node.lanes.cancel("parent", why="", by="")
