"""What is told beside a flood of ready jobs is as true as without it."""

import re
from typing import Any

import pytest
from celery import Celery

from coordinator import Coordinator, trouble_seen
from coordinator.dashboard import dashboard
from coordinator.lanes import view
from coordinator.warden.errands.trouble_reports import TroubleReports
from tests.coordinator.dashboard.stage import TOKEN, TestClient
from tests.harness.command import Call, loaded
from tests.harness.hand_node import Puppet, sketch

FLOOD = 3_000


@pytest.fixture
def flooded(coordinator: Coordinator, node: Puppet) -> Coordinator:
    """Beside the flood: three jobs of a task that no node has, two that need a label, and three behind others."""
    node.lanes.submit_many(sketch(f"flood/{n}") for n in range(FLOOD))
    for key in ("odd/1", "odd/1", "odd/2"):
        node.submit(key, task="shop.gone")
    for key in ("gpu/1", "gpu/2"):
        node.submit(key, needs=["gpu"])
    for _ in range(3):
        node.submit("crowd")
    node.up()  # it has sent no heartbeat for seconds
    return coordinator


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


def test_no_page_contradicts_itself_and_a_sample_says_that_it_is_one(
    flooded: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overview() -> str:
        app = dashboard(flooded, token=TOKEN, hosts=["testserver"])
        text = TestClient(app, headers={"Authorization": f"Bearer {TOKEN}"}).get("/").text
        return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text))

    page = overview()
    assert all(said in page for said in (*SAID, "3 stand behind another job", "crowd 2", "odd/1 1"))
    assert "drawn by chance" not in page
    monkeypatch.setattr(view, "_DRAWN", 1)
    assert "Longest lines of 1 drawn by chance from 2" in overview()
    monkeypatch.undo()
    Puppet(flooded.store).lanes.submit_many(sketch(f"more/{n}", task="shop.gone") for n in range(1_500))
    messages = [one.message for one in flooded.doctor() if one.thing == "task shop.gone"]
    assert messages == ["1502 jobs, and those behind them, wait for a task that no node has"]
