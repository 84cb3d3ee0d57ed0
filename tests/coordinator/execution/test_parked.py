"""Parked jobs whose sub-tasks end without a word."""

from typing import Any

from celery import Celery

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
