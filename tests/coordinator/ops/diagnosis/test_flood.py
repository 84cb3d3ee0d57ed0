"""Beside a flood of ready jobs, reports and alerts are as true as without it."""

from typing import Any

from celery import Celery

from coordinator import Coordinator, alert_raised
from coordinator.ops.alerts import AlertReports
from tests.coordinator.conftest import FLOOD
from tests.harness.command import Call, loaded
from tests.harness.hand_node import Puppet

WAIT = {"waiting.claim": FLOOD + 1, "waiting.node": 4, "waiting.lane": 3}
SAID = ("3 jobs wait for a task that no node has", "2 jobs wait for a node that has it and the task shop.work")


def test_a_flood_hides_nothing_and_changes_no_number(flooded: Coordinator, node: Puppet, call: Call) -> None:
    for _ in range(3):
        assert {row.code: row.count for row in flooded.why_summary().rows} == WAIT
        messages = [one.message for one in flooded.doctor() if one.level == "error"]
        assert sorted(messages) == sorted(SAID)
        assert [(lane.key, lane.waiting) for lane in flooded.contended().longest] == [("crowd", 2), ("odd/1", 1)]
    node.up()
    status = call("status")
    assert [message for message in SAID if message not in status.output] == [], status.output
    assert {row["code"]: row["count"] for row in loaded(call("why", "--summary", "--json"))["rows"]} == WAIT
    assert flooded.why(node="one").causes[0].facts["count"] == 2


def test_a_flood_suppresses_no_alert(flooded: Coordinator, node: Puppet) -> None:
    messages = list[str]()

    def receive(alert: Any, **_: object) -> None:
        messages.append(alert.message)

    alert_raised.connect(receive)
    AlertReports(node.store, node.lanes, Celery("shop", set_as_current=False), 0.01).step()
    alert_raised.disconnect(receive)
    assert sorted(messages) == [f"label gpu: {SAID[1]}", f"task shop.gone: {SAID[0]}"]
