"""The board: evidence of what runners do, without a word of Redis."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import pytest

from coordinator.fleet import board as module
from coordinator.fleet import processes
from coordinator.fleet.board import Board, Pen, nameless
from tests.harness.warm import ROOT, at_once, python, start

FIRST, SECOND = "r" * 24 + "00000001", "r" * 24 + "00000002"
OTHER = "s" * 24 + "00000009"

OPEN = """
from pathlib import Path
from coordinator.fleet.board import Board, nameless
board = Board(Path("/nowhere"), nameless(Path("/tmp")))
"""
TAKE = """
os.write(1, b"up\\n")
os.read(0, 1)
places = [board.pen().start("r").split(".")[2] for _ in range(10)]
os.write(1, " ".join(places).encode() + b"\\n")
"""
NO_MORE = """
import resource
pen = board.pen()
most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, most[1]))
refused = ""
try:
    board.pen()
except OSError as error:
    refused = error.strerror
me = pen.start("r")
pen.begin("r" * 24 + "00000001", None)
resource.setrlimit(resource.RLIMIT_FSIZE, most)
print(refused, board.read(me).state)
"""


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    monkeypatch.setattr(module, "_MEMORY", tmp_path)
    made = Board.open()
    yield made
    made.close()


def begun(board: Board, name: str = "runner") -> tuple[Pen, str]:
    """The pen of a runner that claims now, and its id."""
    pen = board.pen()
    return pen, pen.start(name)


def test_a_runner_is_over_once_it_says_so_or_another_has_its_place_and_never_since_a_file_is_gone(board: Board) -> None:
    pen, me = begun(board)
    shutil.rmtree(board.folder)
    assert not board.read(me).is_done(FIRST)
    pen.begin(FIRST, 0.001)
    assert not board.read(me).is_done(FIRST)
    pen.close()
    assert board.read(me).is_done(FIRST)
    after, other = begun(board, "other")
    assert after is pen
    assert board.read(me).is_done(FIRST)
    assert not board.read(other).is_done(FIRST)


def test_each_look_of_the_main_process_changes_a_file_for_supervisors_also_once_the_folder_was_removed(
    board: Board,
) -> None:
    seen = []
    for _ in range(3):
        shutil.rmtree(board.folder)
        board.look(stops=False)
        seen.append((board.folder / "worker").read_bytes())
    assert len({*seen}) == 3


def test_an_id_of_which_the_board_has_nothing_is_of_a_runner_that_is_over(board: Board) -> None:
    for strange in ("", "1.2", "1.2.r", "1.2.99999999.r", "1.2.9999.r", "1.2.\u00b2.r"):
        assert board.read(strange).is_done(FIRST)


def test_a_claim_whose_body_has_not_begun_is_neither_done_nor_overdue(board: Board) -> None:
    pen, me = begun(board)
    assert not board.read(me).is_done(FIRST)
    assert not board.read(me).has_begun(FIRST)
    pen.begin(FIRST, 0.001)
    notice = board.read(me)
    assert (notice.is_done(FIRST), notice.has_begun(FIRST), notice.has_begun(SECOND)) == (False, True, False)
    assert not board.read(me).is_overdue(SECOND)


def test_the_clock_of_a_body_runs_from_its_beginning_to_its_end(board: Board) -> None:
    pen, me = begun(board)
    pen.begin(FIRST, 0.001)
    time.sleep(0.002)
    assert board.read(me).is_overdue(FIRST)
    pen.end()
    assert not board.read(me).is_overdue(FIRST)
    pen.begin(SECOND, None)
    assert not board.read(me).is_overdue(SECOND)


def test_a_runner_that_went_on_is_done_with_what_it_had_before_and_with_nothing_else(board: Board) -> None:
    pen, me = begun(board)
    pen.begin(SECOND, None)
    notice = board.read(me)
    assert (notice.is_done(FIRST), notice.is_done(SECOND), notice.is_done(OTHER)) == (True, False, False)


def test_a_runner_that_failed_says_why_until_its_notice_is_removed(board: Board) -> None:
    pen, me = begun(board)
    pen.begin(FIRST, None)
    pen.fail("Abort()\nand more " + 1000 * "x")
    silent, other = begun(board, "silent")
    silent.fail("")
    assert board.read(other).state == "failed"
    notice = board.read(me)
    assert (notice.state, notice.is_done(FIRST), notice.has_begun(FIRST)) == ("failed", True, True)
    assert notice.why.startswith("Abort() and more xxx")
    board.remove(me)
    assert board.read(me).state == "over"


def test_a_failure_that_no_job_waits_for_is_removed_after_a_while_and_a_long_run_is_not(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    (failed, first), (runs, second) = begun(board), begun(board)
    failed.fail("it never had a job")
    runs.begin(FIRST, None)
    board.clean()
    assert board.read(first).state == "failed"
    monkeypatch.setattr(module, "_KEPT", -1)
    board.clean()
    assert [board.read(one).state for one in (first, second)] == ["over", "begun"]


def test_a_notice_that_is_just_being_written_is_no_evidence(board: Board) -> None:
    pen, me = begun(board)
    pen.begin(SECOND, None)
    board._map[:] = board._map[:].replace(b"00000002", b"00000009")
    assert (board.read(me).state, board.read(me).is_done(SECOND)) == ("unknown", False)


def test_places_of_dead_processes_and_boards_of_dead_workers_are_freed(board: Board, tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        dead = f"{process.pid}.{processes.birth(process.pid)}"
        process.kill()
    mine = board.folder.name.partition(processes.identity())[0]
    left, of_another_container = tmp_path / f"{mine}{dead}.x", tmp_path / f"celery-coordinator-1-{dead}.x"
    left.mkdir()
    of_another_container.mkdir()
    board.pen(dead).start("runner")
    _, me = begun(board)
    board.clean()
    assert [runner for runner, _ in board.notices()] == [me]
    assert begun(board)[1].split(".")[2] == "0", "the place of the dead one"
    Board.open().close()
    assert not left.exists()
    assert of_another_container.exists()


def test_processes_that_take_a_place_at_the_same_time_get_one_each() -> None:
    with start(["-c", at_once(8, OPEN, TAKE)], stdin=PIPE, stdout=PIPE) as taking:
        assert taking.stdout
        assert [taking.stdout.readline() for _ in range(8)] == ["up\n"] * 8
        taken, _ = taking.communicate(timeout=30)
    assert sorted(map(int, taken.split())) == [*range(80)]


def test_a_memory_that_may_not_grow_refuses_a_new_place_and_no_write_in_an_old_one() -> None:
    assert python(["-c", OPEN + NO_MORE], ROOT, os.environ).stdout == "File too large begun\n"


def test_a_process_that_lost_the_board_s_descriptor_writes_into_nobody_s_file(tmp_path: Path) -> None:
    lost, own = Board(tmp_path, nameless(tmp_path)), tmp_path / "own"
    own.write_text("of the body" * 100)
    with own.open("r+b") as file:
        os.dup2(file.fileno(), lost.memory)  # a body closed it, and the number went to a file of its own
    with pytest.raises(OSError, match="somebody closed the board's descriptor"):
        lost.pen()
    assert own.read_text() == "of the body" * 100
    lost.close()


def test_where_the_system_has_no_memory_without_a_name_a_removed_file_serves(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    other = Board.open()
    clock = Board(other.folder, os.dup(other.memory))
    pen, me = begun(other)
    pen.begin(FIRST, None)
    assert (clock.read(me).token, [*other.folder.iterdir()]) == (FIRST, [])
    clock.close()
    other._map.close()


def test_the_clock_of_a_worker_that_restarts_removes_no_board_of_the_next_one(board: Board) -> None:
    """SIGHUP: the same process, and so the same identity; the old clock may end later."""
    after = Board.open()
    Board(board.folder, os.dup(board.memory)).close()
    assert after.folder.exists()


def test_where_there_is_no_shared_memory_a_folder_of_the_system_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MEMORY", tmp_path / "none")
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path))
    assert Board.open().folder.parent == tmp_path


def test_processes_of_the_worker_see_at_once_whether_it_sends_task_events(board: Board) -> None:
    other = Board(board.folder, os.dup(board.memory))
    assert not board.events
    board.events = True
    assert other.events
    other.events = False
    assert not board.events
