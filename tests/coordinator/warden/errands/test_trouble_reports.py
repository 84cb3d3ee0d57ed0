"""Trouble is told unasked: each at least once, and once where nothing went wrong with the telling."""

from collections.abc import Iterator
from typing import Any

import pytest

from coordinator import Coordinator, Trouble, trouble_seen
from coordinator.warden.errands.trouble_reports import TroubleReports
from tests.harness.hand_node import Puppet
from tests.harness.installation import Installation

Told = list[Trouble]


@pytest.fixture
def told() -> Iterator[Told]:
    """What a handler of users is told."""
    heard: Told = []

    def hear(trouble: Trouble, **_: object) -> None:
        heard.append(trouble)

    trouble_seen.connect(hear)
    yield heard
    trouble_seen.disconnect(hear)


def errands(node: Puppet, app: Any, look: float = 1e9) -> TroubleReports:
    node.store.settings = node.store.settings.model_copy(update={"long_wait": 30.0})
    return TroubleReports(node.store, node.lanes, app, look)


@pytest.fixture
def app(apps: Installation) -> Any:
    app = apps.shop.app
    app.main = "shop"  # as the puppet's
    return app


def test_each_failure_hold_and_double_fault_is_told_once_whichever_node_looks(
    node: Puppet, app: Any, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    undo = {"task": "shop.other"}
    node.submit("a", job_id="fails")
    node.submit("b", job_id="held", on_failure="hold")
    node.submit("c", job_id="undone", rollback=undo)
    node.submit("d", job_id="both", rollback=undo)
    node.submit("e", job_id="good")
    node.submit("f", job_id="again", max_attempts=2)
    ends = {"good": ["succeeded"], "again": ["raised", "succeeded"], "undone": ["failed", "succeeded"]}
    while taken := node.take():
        node.finish(taken, ends[taken.id].pop(0) if taken.id in ends else "failed")
    beat = node.nodes.beat("one", "a", {})
    assert beat
    assert beat.errands, "the clock wakes them"
    for each in (errands(node, app), errands(node, app)):
        each.step()
    assert sorted((trouble.kind, trouble.job_id) for trouble in told) == [
        ("double_fault", "both"), ("failed", "fails"), ("failed", "undone"), ("held", "held"),
    ]  # fmt: skip
    (held,) = (trouble for trouble in told if trouble.kind == "held")
    assert (held.key, held.task) == ("b", "shop.work")
    assert "job held of shop.work (lane b) is held for an operator" in held.message
    assert caplog.text.count("trouble (held): job held") == 1
    assert caplog.text.count("double fault: job both of shop.work (lane d) failed: ") == 1
    assert [one.levelname for one in caplog.records if "; its rollback failed, too: " in one.message] == ["ERROR"]
    assert not node.store.read("EXISTS", node.store.key("troubles", "shop"))
    node.lanes.cancel("held", why="", by="x")


def test_a_handler_that_raises_is_called_again_and_given_up_after_an_hour(node: Puppet, app: Any, told: Told) -> None:
    down = [True]

    def refuse(trouble: Trouble, **_: object) -> None:
        if down[0]:
            raise ConnectionError("the webhook is away")

    trouble_seen.connect(refuse)
    troubles, mine = node.store.key("troubles", "shop"), errands(node, app)
    node.submit("a", job_id="fails")
    node.finish(node.must_take(), "failed")
    mine.step()
    mine.step()
    assert len(told) == 1, "not at once"
    ((member, due),) = node.store.read("ZRANGE", troubles, 0, -1, "WITHSCORES")
    assert 25_000 < due - node.store.now() <= 30_000
    node.store.read("ZADD", troubles, 0, member)
    down[0] = False
    mine.step()
    assert (len(told), node.store.read("ZCARD", troubles)) == (2, 0)
    down[0] = True
    node.store.read("ZADD", troubles, 0, f"failed {node.store.now() - 3_601_000} fails")
    mine.step()
    assert (len(told), node.store.read("ZCARD", troubles)) == (3, 0)
    trouble_seen.disconnect(refuse)


def test_long_waits_and_tasks_that_no_node_has_are_told_once_an_hour_by_one_node(
    coordinator: Coordinator, node: Puppet, app: Any, told: Told
) -> None:
    client, key = node.store._client, node.store.key
    node.submit("a", job_id="holds")
    taken = node.must_take()
    node.submit("a", job_id="waits")
    node.submit("b", job_id="short")
    node.submit("c", job_id="nobodys", task="shop.unknown")
    client.hset(key("job", "waits"), "submitted", node.store.now() - 120_000)
    errands(node, app, look=30).step()
    assert [(trouble.kind, trouble.job_id or trouble.task) for trouble in told] == [
        ("waits", "waits"), ("no_node", "shop.unknown"),
    ]  # fmt: skip
    assert told[0].message == "job waits of shop.work (lane a) has waited for its turn in its lane for 2 min"
    errands(node, app, look=30).step()
    client.delete(key("looked"))
    errands(node, app, look=30).step()
    assert len(told) == 2, "another node looked; and it was told within the hour"
    client.delete(key("looked"), key("told", "waits", "waits"))
    errands(node, app, look=30).step()
    assert [trouble.job_id for trouble in told[2:]] == ["waits"]
    node.finish(taken)
    coordinator.cancel("nobodys")
    node.order()
