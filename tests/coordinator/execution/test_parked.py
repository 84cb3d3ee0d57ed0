"""Parked jobs whose sub-tasks end without a word."""

from typing import Any

import pytest
from celery import Celery
from kombu.utils.json import dumps

from coordinator.execution.parked import Parked
from tests.harness.hand_node import Puppet


def test_an_end_that_nobody_tells_is_seen_by_the_slow_look(node: Puppet) -> None:
    app, client = Celery("shop", backend="cache+memory://"), node.store.client
    looks, parked = Parked(node.lanes, app), node.store.key("parked", "shop")
    node.submit("a", job_id="parent")
    parent = node.must_take()
    node.store.step("job_finish", parent.id, parent.token, "parked", '{"ids": ["child"], "one": true}', 0, "", "", "",
                    "", "one", parent.runner, "", 60000, "")  # fmt: skip
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


class Counting:
    """A backend without `mget`, that counts how often it is asked for which task."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.done: set[str] = set()

    def get_task_meta(self, task_id: str) -> dict[str, Any]:
        self.asked.append(task_id)
        return {"status": "SUCCESS" if task_id in self.done else "PENDING", "result": 1}


def test_a_look_at_a_job_with_many_sub_results_asks_for_what_is_new(
    node: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.execution.parked._TOGETHER", 10)
    backend, app = Counting(), Celery("shop", set_as_current=False)
    monkeypatch.setattr(type(app), "backend", backend)
    looks, ids = Parked(node.lanes, app), [f"c{number:03}" for number in range(100)]
    node.submit("a", job_id="parent")
    parent = node.must_take()
    node.store.step("job_finish", parent.id, parent.token, "parked", dumps({"ids": ids, "one": False}), 0, "", "", "",
                    "", "one", parent.runner, "", 60000, "")  # fmt: skip
    for number in range(100):
        backend.done.add(ids[number])
        node.store.step("child_ended", "parent")
        looks.step()
    assert node.lanes.job("parent").result == [1] * 100
    assert len(backend.asked) < 100 * 10 + 100 + 100, "each look asks for one portion, the last one for all"
