"""The Overview beside a flood of ready jobs."""

import re

import pytest

from coordinator import Coordinator
from coordinator.ops.search import lanes as found_lanes
from tests.coordinator.ops.dashboard.conftest import Visit
from tests.harness.hand_node import Puppet, sketch


def test_no_page_contradicts_itself_and_a_sample_says_that_it_is_one(
    flooded: Coordinator, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overview() -> str:
        text = visit(flooded).get("/").text
        return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text))

    page = overview()
    assert all(
        said in page
        for said in (
            "3 jobs wait for a task",
            "2 jobs wait for a node",
            "3 stand behind another job",
            "crowd 2",
            "odd/1 1",
        )
    )
    assert "drawn by chance" not in page
    monkeypatch.setattr(found_lanes, "_DRAWN", 1)
    assert "Longest lines of 1 drawn by chance from 2" in overview()
    monkeypatch.undo()
    Puppet(flooded.store).lanes.submit_many(sketch(f"more/{n}", task="shop.gone") for n in range(1_500))
    messages = [one.message for one in flooded.doctor() if one.thing == "task shop.gone"]
    assert messages == ["1502 jobs, and those behind them, wait for a task that no node has"]
