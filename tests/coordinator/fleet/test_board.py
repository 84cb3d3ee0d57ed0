"""The board: evidence of what runners do, without a word of Redis."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.fleet import board as module
from coordinator.fleet import processes
from coordinator.fleet.board import Board

FIRST, SECOND = "r" * 24 + "00000001", "r" * 24 + "00000002"
OTHER = "s" * 24 + "00000009"
ME = f"{processes.identity()}.runner"


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    monkeypatch.setattr(module, "_MEMORY", tmp_path)
    made = Board.open()
    yield made
    made.close()


def test_a_runner_is_over_without_a_notice_and_nobody_can_say_without_a_board(board: Board) -> None:
    assert board.read(ME).is_done(FIRST)
    board.close()
    unknown = board.read(ME)
    assert not unknown.is_done(FIRST)
    assert unknown.has_begun(FIRST)
    assert unknown.is_overdue(FIRST)
    pen = board.pen(ME)
    pen.begin(FIRST, None)
    pen.end()
    pen.close()
    assert board.read(ME).state == "unknown"


def test_a_claim_whose_body_has_not_begun_is_neither_done_nor_overdue(board: Board) -> None:
    pen = board.pen(ME)
    assert not board.read(ME).is_done(FIRST)
    assert not board.read(ME).has_begun(FIRST)
    pen.begin(FIRST, 0.001)
    notice = board.read(ME)
    assert (notice.is_done(FIRST), notice.has_begun(FIRST), notice.has_begun(SECOND)) == (False, True, False)
    assert not board.read(ME).is_overdue(SECOND)


def test_the_clock_of_a_body_runs_from_its_beginning_to_its_end(board: Board) -> None:
    pen = board.pen(ME)
    pen.begin(FIRST, 0.001)
    time.sleep(0.002)
    assert board.read(ME).is_overdue(FIRST)
    pen.end()
    assert not board.read(ME).is_overdue(FIRST)
    pen.begin(SECOND, None)
    assert not board.read(ME).is_overdue(SECOND)


def test_a_runner_that_went_on_is_done_with_what_it_had_before_and_with_nothing_else(board: Board) -> None:
    pen = board.pen(ME)
    pen.begin(SECOND, None)
    notice = board.read(ME)
    assert (notice.is_done(FIRST), notice.is_done(SECOND), notice.is_done(OTHER)) == (True, False, False)
    pen.close()
    assert board.read(ME).is_done(SECOND)


def test_a_runner_that_failed_says_why_until_its_notice_is_removed(board: Board) -> None:
    pen = board.pen(ME)
    pen.begin(FIRST, None)
    pen.fail("Abort()\nand more " + 1000 * "x")
    silent = board.pen(f"{ME}2")
    silent.fail("")
    assert board.read(f"{ME}2").state == "failed"
    notice = board.read(ME)
    assert (notice.state, notice.is_done(FIRST), notice.has_begun(FIRST)) == ("failed", True, True)
    assert notice.why.startswith("Abort() and more xxx")
    board.remove(ME)
    assert board.read(ME).state == "over"


def test_a_failure_that_no_job_waits_for_is_removed_after_a_while_and_a_long_run_is_not(board: Board) -> None:
    board.pen(f"{ME}2").fail("it never had a job")
    board.pen(f"{ME}3").begin(FIRST, None)
    board.clean()
    assert board.read(f"{ME}2").state == "failed"
    for path in board.folder.iterdir():
        os.utime(path, (0, 0))
    board.clean()
    assert [board.read(f"{ME}{one}").state for one in (2, 3)] == ["over", "begun"]


def test_a_notice_that_is_just_being_written_is_no_evidence(board: Board) -> None:
    pen = board.pen(ME)
    pen.begin(SECOND, None)
    path = board.folder / ME
    path.write_bytes(path.read_bytes().replace(b"00000002", b"00000009"))
    assert not board.read(ME).is_done(SECOND)


def test_notices_of_dead_processes_and_boards_of_dead_workers_are_removed(board: Board, tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        dead = f"{process.pid}.{processes.birth(process.pid)}"
        process.kill()
    mine = board.folder.name.partition(processes.identity())[0]
    left, of_another_container = tmp_path / f"{mine}{dead}.x", tmp_path / f"celery-coordinator-1-{dead}.x"
    left.mkdir()
    of_another_container.mkdir()
    board.pen(f"{dead}.runner")
    board.pen(ME)
    board.clean()
    assert sorted(os.listdir(board.folder)) == [ME, "worker"]
    Board.open()
    assert not left.exists()
    assert of_another_container.exists()


def test_the_clock_of_a_worker_that_restarts_removes_no_board_of_the_next_one(board: Board) -> None:
    """SIGHUP: the same process, and so the same identity; the old clock may end later."""
    after = Board.open()
    Board(board.folder).close()
    assert after.folder.exists()


def test_where_there_is_no_shared_memory_a_folder_of_the_system_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MEMORY", tmp_path / "none")
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path))
    assert Board.open().folder.parent == tmp_path


def test_processes_of_the_worker_see_at_once_whether_it_sends_task_events(board: Board) -> None:
    other = Board(board.folder)
    assert not board.events
    board.events = True
    assert other.events
    other.events = False
    assert not board.events
    gone = Board(board.folder / "gone")
    assert not gone.events
