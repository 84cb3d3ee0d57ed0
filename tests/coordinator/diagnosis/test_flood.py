"""What is told beside a flood of ready jobs is as true as without it."""

from typing import Any

from celery import Celery

from coordinator import Coordinator, trouble_seen
from coordinator.warden.errands.trouble_reports import TroubleReports
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
    told = call("status")
    assert [said for said in SAID if said not in told.output] == [], told.output
    assert {row["code"]: row["count"] for row in loaded(call("why", "--summary", "--json"))["rows"]} == WAIT
    assert flooded.why(node="one").causes[0].facts["count"] == 2


def test_a_flood_keeps_no_trouble_from_being_told(flooded: Coordinator, node: Puppet) -> None:
    told = list[str]()

    def hear(trouble: Any, **_: object) -> None:
        told.append(trouble.message)

    trouble_seen.connect(hear)
    TroubleReports(node.store, node.lanes, Celery("shop", set_as_current=False), 0.01).step()
    trouble_seen.disconnect(hear)
    assert sorted(told) == [f"label gpu: {SAID[1]}", f"task shop.gone: {SAID[0]}"]
