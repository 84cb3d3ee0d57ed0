"""Each alert reaches the handlers at least once, and only once where no handler or node failed."""

from collections.abc import Iterator
from typing import Any

import pytest

from coordinator import Alert, Coordinator, alert_raised
from coordinator.ops.alerts import AlertReports
from tests.harness.hand_node import Puppet
from tests.harness.installation import Installation

Alerts = list[Alert]


@pytest.fixture
def alerts() -> Iterator[Alerts]:
    """The alerts that a user's handler receives."""
    received: Alerts = []

    def receive(alert: Alert, **_: object) -> None:
        received.append(alert)

    alert_raised.connect(receive)
    yield received
    alert_raised.disconnect(receive)


def reports(node: Puppet, app: Any, pause: float = 1e9) -> AlertReports:
    node.store.settings = node.store.settings.model_copy(update={"long_wait": 30.0})
    return AlertReports(node.store, node.lanes, app, pause)


@pytest.fixture
def app(apps: Installation) -> Any:
    app = apps.shop.app
    app.main = "shop"  # as the puppet's
    return app


def test_each_failure_hold_and_double_fault_raises_one_alert_whichever_node_takes_it(
    node: Puppet, app: Any, alerts: Alerts, caplog: pytest.LogCaptureFixture
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
    assert beat.maintenance, "the supervisor wakes it"
    for each in (reports(node, app), reports(node, app)):
        each.step()
    assert sorted((alert.kind, alert.job_id) for alert in alerts) == [
        ("double_fault", "both"), ("failed", "fails"), ("failed", "undone"), ("held", "held"),
    ]  # fmt: skip
    (held,) = (alert for alert in alerts if alert.kind == "held")
    assert (held.key, held.task) == ("b", "shop.work")
    assert "job held of shop.work (lane b) is held for an operator" in held.message
    assert caplog.text.count("alert (held): job held") == 1
    assert caplog.text.count("double fault: job both of shop.work (lane d) failed: ") == 1
    assert [one.levelname for one in caplog.records if "; its rollback failed, too: " in one.message] == ["ERROR"]
    assert not node.store.read("EXISTS", node.store.key("troubles", "shop"))
    node.lanes.cancel("held", why="", by="x")


def test_a_handler_that_raises_is_called_again_and_given_up_after_an_hour(
    node: Puppet, app: Any, alerts: Alerts
) -> None:
    down = [True]

    def refuse(alert: Alert, **_: object) -> None:
        if down[0]:
            raise ConnectionError("the webhook is away")

    alert_raised.connect(refuse)
    entries, mine = node.store.key("troubles", "shop"), reports(node, app)
    node.submit("a", job_id="fails")
    node.finish(node.must_take(), "failed")
    mine.step()
    mine.step()
    assert len(alerts) == 1, "not at once"
    ((entry, due),) = node.store.read("ZRANGE", entries, 0, -1, "WITHSCORES")
    assert 25_000 < due - node.store.now() <= 30_000
    node.store.read("ZADD", entries, 0, entry)
    down[0] = False
    mine.step()
    assert (len(alerts), node.store.read("ZCARD", entries)) == (2, 0)
    down[0] = True
    node.store.read("ZADD", entries, 0, f"failed {node.store.now() - 3_601_000} fails")
    mine.step()
    assert (len(alerts), node.store.read("ZCARD", entries)) == (3, 0)
    alert_raised.disconnect(refuse)


def test_one_node_raises_an_alert_about_a_long_wait_or_an_unknown_task_once_an_hour(
    coordinator: Coordinator, node: Puppet, app: Any, alerts: Alerts
) -> None:
    client, key = node.store._client, node.store.key
    node.submit("a", job_id="holds")
    taken = node.must_take()
    node.submit("a", job_id="waits")
    node.submit("b", job_id="short")
    node.submit("c", job_id="nobodys", task="shop.unknown")
    client.hset(key("job", "waits"), "submitted", node.store.now() - 120_000)
    reports(node, app, pause=30).step()
    assert [(alert.kind, alert.job_id or alert.task) for alert in alerts] == [
        ("waits", "waits"), ("no_node", "shop.unknown"),
    ]  # fmt: skip
    assert alerts[0].message == "job waits of shop.work (lane a) has waited for its turn in its lane for 2 min"
    reports(node, app, pause=30).step()
    client.delete(key("looked"))
    reports(node, app, pause=30).step()
    assert len(alerts) == 2, "another node scanned; and the alert was raised within the hour"
    client.delete(key("looked"), key("told", "waits", "waits"))
    reports(node, app, pause=30).step()
    assert [alert.job_id for alert in alerts[2:]] == ["waits"]
    coordinator.quota("licence", concurrency=1)
    coordinator.cool_down("licence", 3600)
    node.submit([], job_id="unlicensed", uses="licence")
    past = {"submitted": node.store.now() - 120_000, "lacked": node.store.now() - 120_000}
    client.hset(key("job", "unlicensed"), mapping=past)
    client.delete(key("looked"))
    reports(node, app, pause=30).step()
    assert alerts[-1].message == "job unlicensed of shop.work has waited for a quota that it uses for 2 min"
    assert (alerts[-1].key, alerts[-1].kind) == ("", "waits")
    coordinator.cool_down("licence")
    node.finish(taken)
    coordinator.cancel("nobodys")
    node.order()
