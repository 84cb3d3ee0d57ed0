"""The grid of batches and events fits its terminal, and shows what most needs a look."""

from dataclasses import replace

import pytest
from rich.console import Console

from examples.demo.grid import Row, grid, tally
from tasks import instants
from tasks.batches import ItemEvent, Report

EVENTS = ("Data_Received", "Structure_Checked", "JPylyzed", "Editions_relations_generated", "Manual_QA_Flagged")
LAST = "Manual_QA_Flagged"
DONE = ItemEvent(
    "1", "B1-RT1", "", True, "a-1", "1", 1, 1, 1, instants.NEVER, instants.NEVER, Report(), None, None, None
)


def row(number: int, *done: str, failed: str = "", **working: str) -> Row:
    outcomes = dict.fromkeys(done, DONE) | ({failed: replace(DONE, success=False)} if failed else {})
    return Row(f"B40002202824{number}-RT1", outcomes, working)


def shown(rows: list[Row], width: int = 80, height: int = 24, events: tuple[str, ...] = EVENTS) -> list[str]:
    console = Console(width=width, height=height, color_system=None)
    with console.capture() as said:
        console.print(grid(rows, events, width, height, LAST))
    return said.get().splitlines()


def line(rows: list[Row], number: int) -> list[str]:
    (found,) = [one.split() for one in shown(rows) if one.startswith(f"B40002202824{number}-")]
    return found[1:]


def test_a_batch_shows_what_succeeded_what_failed_and_which_node_works_on_it() -> None:
    rows = [
        row(1, *EVENTS),
        row(2, "Data_Received", failed="Structure_Checked"),
        row(3, "Data_Received", Structure_Checked="cn2@host"),
        row(4),
        row(5, "Data_Received", "Manually_stopped"),
    ]
    assert [line(rows, number) for number in range(1, 6)] == [["✓"] * 5, ["✓", "✗"], ["✓", "cn2"], [], ["✓", "✓"]]
    assert tally(rows, LAST) == "1 of 5 batches have Manual_QA_Flagged; 1 failed"
    assert "stopped" in " ".join(shown(rows)[:3])


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("height", [10, 24])
def test_the_grid_is_never_wider_or_higher_than_the_terminal(width: int, height: int) -> None:
    lines = shown([row(number, *EVENTS) for number in range(10)] * 3, width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert sum("✓" in one for one in lines) >= 4
    before = shown([], width, height, EVENTS * 2)
    assert max(map(len, before)) <= width, "also before the first batch"
    assert all("…" not in one for one in before)
    assert all("…" not in one for one in lines)


def test_batches_that_have_arrived_leave_their_lines_to_the_others() -> None:
    rows = [*(row(number, *EVENTS) for number in range(6)), row(7, failed="Structure_Checked"), row(8), row(9)]
    lines = shown(rows, height=9)
    assert [one.split("-")[0][-1] for one in lines if one.startswith("B4")] == ["0", "1", "7", "8", "9"]
    assert "and 4 more" in lines[-1]
