"""The demo of batches, as a program."""

import re
import signal
from functools import partial
from pathlib import Path

import pytest

from examples.batches.deliver import items
from tests.harness.command import Command, called, refused
from tests.harness.terminal import on_a_terminal
from tests.harness.waiting import wait_until

DEMO = ("-m", "examples.demo", "--batches", "--no-flower")
BATCHES = items(20)


@pytest.mark.timeout(240)
def test_all_batches_arrive_once_two_are_mended_and_ctrl_c_ends_it_with_the_grid(tmp_path: Path) -> None:
    with Command(tmp_path, *DEMO, env={"COLUMNS": "140"}) as demo:
        for item, why in ((BATCHES[2], "another checksum"), (BATCHES[6], "not there")):
            demo.says(f"{item} failed in Structure_Checked (", 90)
            mended = demo.out.index(f"{item} failed in Structure_Checked (")
            assert why in demo.out[mended:].splitlines()[0]
        demo.says("20 of 20 batches have Manual_QA_Flagged; 0 failed", 90)
        assert demo.end() == 0, demo.err
        assert demo.family() == []
    for item in BATCHES:
        assert re.search(rf"^{item}( +✓){{9}}", demo.out, re.MULTILINE), demo.out
    data = re.search(r"^data +(\S+)", demo.out, re.MULTILINE)
    assert data
    assert not Path(data[1]).exists()


def looks_well(screen: list[str], columns: int, head: str) -> bool:
    """One grid, whole, with a batch on its way, and its summary below it."""
    shown = [line for line in screen if line]
    return (
        sum(line.startswith("batch ") for line in shown) == 1
        and any(head in line for line in shown)
        and any(line.startswith(BATCHES[0]) and line.count("✓") >= 4 for line in shown)
        and all(len(line) <= columns and "…" not in line for line in shown)
        and bool(re.fullmatch(r"\d+ of \d+ batches have .*; \d+ failed; \d+ s; nodes: .*", shown[-1]))
    )


def test_on_a_terminal_one_grid_stands_still_and_fills_a_wider_one(tmp_path: Path) -> None:
    with on_a_terminal(*DEMO, "--data", str(tmp_path)) as (terminal, process):
        for columns, lines, head in ((80, 24, "Edit Warn"), (120, 30, "Editions  Warning")):
            terminal.resize(columns, lines)
            there = partial(lambda *given: looks_well(terminal.screen, *given), columns, head)
            wait_until(there, 60, lambda: "\n".join(terminal.screen))
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 1, "not all have arrived"
        wait_until(lambda: any("have Manual_QA_Flagged; " in line for line in terminal.screen))


def test_it_fails_where_no_batch_has_arrived_in_its_time(tmp_path: Path) -> None:
    with Command(tmp_path, *DEMO, "--for", "1") as demo:
        assert demo.process.wait(60) == 1
    assert "0 of 0 batches have Manual_QA_Flagged" in demo.out


def test_it_shares_no_redis_with_an_installation(tmp_path: Path) -> None:
    named = {"COORDINATOR_URL": "redis://127.0.0.1:1"}
    assert "has a Redis of its own: unset COORDINATOR_URL" in refused(called(tmp_path, named, *DEMO))


def test_without_its_libraries_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "jpylyzer.py").write_text("raise ModuleNotFoundError('as if it were away', name='jpylyzer')")
    said = refused(called(tmp_path, {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[3]}"}, *DEMO))
    assert "pip install 'celery-coordinator[batches]'" in said
