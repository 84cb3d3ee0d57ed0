"""The demo of batches, as a program."""

import re
import signal
from functools import partial
from pathlib import Path

import psutil

from examples.batches.deliver import items
from tests.harness.command import Command, called, gone, refused
from tests.harness.terminal import on_a_terminal
from tests.harness.waiting import wait_until

DEMO = ("-m", "examples.demo", "--batches", "--no-flower")
BATCHES = items(20)


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


def test_one_grid_stands_still_until_all_batches_arrived_two_of_them_mended_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    with on_a_terminal(*DEMO, "--data", str(tmp_path)) as (terminal, process):

        def said(text: str) -> list[str]:
            return [line for line in terminal.lines if text in line]

        def screen() -> str:
            return "\n".join(terminal.screen)

        for columns, lines, head in ((80, 24, "Edit Warn"), (120, 30, "Editions  Warning")):
            terminal.resize(columns, lines)
            wait_until(partial(lambda *given: looks_well(terminal.screen, *given), columns, head), 60, screen)
        for item, why in ((BATCHES[2], "another checksum"), (BATCHES[6], "not there")):
            wait_until(partial(said, f"{item} failed in Structure_Checked ("), 90, screen)
            assert why in said(f"{item} failed in Structure_Checked (")[0]
        wait_until(partial(said, "20 of 20 batches have Manual_QA_Flagged; 0 failed"), 90, screen)
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) > 10
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        wait_until(partial(said, "stopping ..."))
        assert [one for one in family if not gone(one.pid)] == []
        for item in BATCHES:
            assert any(re.match(rf"{item}( +✓){{9}}", line) for line in terminal.lines), screen()


def test_it_fails_where_no_batch_has_arrived_in_its_time(tmp_path: Path) -> None:
    with Command(tmp_path, *DEMO, "--for", "1") as demo:
        assert demo.process.wait(60) == 1
    assert "0 of 0 batches have Manual_QA_Flagged" in demo.out
    data = re.search(r"^data +(\S+)", demo.out, re.MULTILINE)
    assert data
    assert not Path(data[1]).exists()


def test_it_shares_no_redis_with_an_installation(tmp_path: Path) -> None:
    named = {"COORDINATOR_URL": "redis://127.0.0.1:1"}
    assert "has a Redis of its own: unset COORDINATOR_URL" in refused(called(tmp_path, named, *DEMO))


def test_without_its_libraries_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "jpylyzer.py").write_text("raise ModuleNotFoundError('as if it were away', name='jpylyzer')")
    said = refused(called(tmp_path, {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[3]}"}, *DEMO))
    assert "pip install 'celery-coordinator[batches]'" in said
