"""The runner status file: evidence of what runners do, without Redis."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import pytest

from coordinator.core.fleet import processes
from coordinator.core.fleet import status_file as module
from coordinator.core.fleet.status_file import StatusFile, StatusWriter, anonymous_file
from tests.harness.warm import ROOT, at_once, python, start

FIRST, SECOND = "r" * 24 + "00000001", "r" * 24 + "00000002"
OTHER = "s" * 24 + "00000009"

OPEN = """
from pathlib import Path
from coordinator.core.fleet.status_file import StatusFile, anonymous_file
status_file = StatusFile(Path("/nowhere"), anonymous_file(Path("/tmp")))
"""
TAKE = """
os.write(1, b"up\\n")
os.read(0, 1)
rows = [status_file.writer().start("r").split(".")[2] for _ in range(10)]
os.write(1, " ".join(rows).encode() + b"\\n")
"""
NO_MORE = """
import resource
writer = status_file.writer()
most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, most[1]))
refused = ""
try:
    status_file.writer()
except OSError as error:
    refused = error.strerror
me = writer.start("r")
writer.begin("r" * 24 + "00000001", None)
resource.setrlimit(resource.RLIMIT_FSIZE, most)
print(refused, status_file.read(me).state)
"""


@pytest.fixture
def status_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StatusFile]:
    monkeypatch.setattr(module, "_MEMORY", tmp_path)
    made = StatusFile.open()
    yield made
    made.close()


def begun(status_file: StatusFile, name: str = "runner") -> tuple[StatusWriter, str]:
    """The writer of a runner that claims now, and its id."""
    writer = status_file.writer()
    return writer, writer.start(name)


def test_a_runner_is_over_once_it_says_so_or_another_has_its_row_and_never_since_a_file_is_gone(
    status_file: StatusFile,
) -> None:
    writer, me = begun(status_file)
    shutil.rmtree(status_file.folder)
    assert not status_file.read(me).is_done(FIRST)
    writer.begin(FIRST, 0.001)
    assert not status_file.read(me).is_done(FIRST)
    writer.close()
    assert status_file.read(me).is_done(FIRST)
    after, other = begun(status_file, "other")
    assert after is writer
    assert status_file.read(me).is_done(FIRST)
    assert not status_file.read(other).is_done(FIRST)


def test_each_look_of_the_main_process_changes_a_file_for_probes_also_once_the_folder_was_removed(
    status_file: StatusFile,
) -> None:
    seen = []
    for _ in range(3):
        shutil.rmtree(status_file.folder)
        status_file.look(stops=False)
        seen.append((status_file.folder / "worker").read_bytes())
    assert len({*seen}) == 3


def test_an_id_of_which_the_status_file_has_nothing_is_of_a_runner_that_is_over(status_file: StatusFile) -> None:
    for strange in ("", "1.2", "1.2.r", "1.2.99999999.r", "1.2.9999.r", "1.2.\u00b2.r"):
        assert status_file.read(strange).is_done(FIRST)


def test_a_claim_whose_body_has_not_begun_is_neither_done_nor_overdue(status_file: StatusFile) -> None:
    writer, me = begun(status_file)
    assert not status_file.read(me).is_done(FIRST)
    assert not status_file.read(me).has_begun(FIRST)
    writer.begin(FIRST, 0.001)
    status = status_file.read(me)
    assert (status.is_done(FIRST), status.has_begun(FIRST), status.has_begun(SECOND)) == (False, True, False)
    assert not status_file.read(me).is_overdue(SECOND)


def test_the_clock_of_a_body_runs_from_its_beginning_to_its_end(status_file: StatusFile) -> None:
    writer, me = begun(status_file)
    writer.begin(FIRST, 0.001)
    time.sleep(0.002)
    assert status_file.read(me).is_overdue(FIRST)
    writer.end()
    assert not status_file.read(me).is_overdue(FIRST)
    writer.begin(SECOND, None)
    assert not status_file.read(me).is_overdue(SECOND)


def test_a_runner_that_went_on_is_done_with_what_it_had_before_and_with_nothing_else(status_file: StatusFile) -> None:
    writer, me = begun(status_file)
    writer.begin(SECOND, None)
    status = status_file.read(me)
    assert (status.is_done(FIRST), status.is_done(SECOND), status.is_done(OTHER)) == (True, False, False)


def test_a_runner_that_failed_says_why_until_its_status_is_removed(status_file: StatusFile) -> None:
    writer, me = begun(status_file)
    writer.begin(FIRST, None)
    writer.fail("Abort()\nand more " + 1000 * "x")
    silent, other = begun(status_file, "silent")
    silent.fail("")
    assert status_file.read(other).state == "failed"
    status = status_file.read(me)
    assert (status.state, status.is_done(FIRST), status.has_begun(FIRST)) == ("failed", True, True)
    assert status.why.startswith("Abort() and more xxx")
    status_file.remove(me)
    assert status_file.read(me).state == "over"


def test_a_failure_that_no_job_waits_for_is_removed_after_a_while_and_a_long_run_is_not(
    status_file: StatusFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    (failed, first), (runs, second) = begun(status_file), begun(status_file)
    failed.fail("it never had a job")
    runs.begin(FIRST, None)
    status_file.clean()
    assert status_file.read(first).state == "failed"
    monkeypatch.setattr(module, "_KEPT", -1)
    status_file.clean()
    assert [status_file.read(one).state for one in (first, second)] == ["over", "begun"]


def test_a_status_that_is_just_being_written_is_no_evidence(status_file: StatusFile) -> None:
    writer, me = begun(status_file)
    writer.begin(SECOND, None)
    status_file._map[:] = status_file._map[:].replace(b"00000002", b"00000009")
    assert (status_file.read(me).state, status_file.read(me).is_done(SECOND)) == ("unknown", False)


def test_rows_of_dead_processes_and_folders_of_dead_workers_are_freed(status_file: StatusFile, tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        dead = f"{process.pid}.{processes.birth(process.pid)}"
        process.kill()
    mine = status_file.folder.name.partition(processes.identity())[0]
    left, of_another_container = tmp_path / f"{mine}{dead}.x", tmp_path / f"celery-coordinator-1-{dead}.x"
    left.mkdir()
    of_another_container.mkdir()
    status_file.writer(dead).start("runner")
    _, me = begun(status_file)
    status_file.clean()
    assert [runner for runner, _ in status_file.statuses()] == [me]
    assert begun(status_file)[1].split(".")[2] == "0", "the row of the dead one"
    StatusFile.open().close()
    assert not left.exists()
    assert of_another_container.exists()


def test_processes_that_take_a_row_at_the_same_time_get_one_each() -> None:
    with start(["-c", at_once(8, OPEN, TAKE)], stdin=PIPE, stdout=PIPE) as taking:
        assert taking.stdout
        assert [taking.stdout.readline() for _ in range(8)] == ["up\n"] * 8
        taken, _ = taking.communicate(timeout=60)
    assert sorted(map(int, taken.split())) == [*range(80)]


def test_a_memory_that_may_not_grow_refuses_a_new_row_and_no_write_in_an_old_one() -> None:
    assert python(["-c", OPEN + NO_MORE], ROOT, os.environ).stdout == "File too large begun\n"


def test_a_process_that_lost_the_status_file_s_descriptor_writes_into_nobody_s_file(tmp_path: Path) -> None:
    lost, own = StatusFile(tmp_path, anonymous_file(tmp_path)), tmp_path / "own"
    own.write_text("of the body" * 100)
    with own.open("r+b") as file:
        os.dup2(file.fileno(), lost.fd)  # a body closed it, and the number went to a file of its own
    with pytest.raises(OSError, match="the descriptor of the runner status file was closed"):
        lost.writer()
    assert own.read_text() == "of the body" * 100
    lost.close()


def test_where_the_system_has_no_memory_without_a_name_a_removed_file_serves(
    status_file: StatusFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    other = StatusFile.open()
    supervisor = StatusFile(other.folder, os.dup(other.fd))
    writer, me = begun(other)
    writer.begin(FIRST, None)
    assert (supervisor.read(me).token, [*other.folder.iterdir()]) == (FIRST, [])
    supervisor.close()
    other._map.close()


def test_the_supervisor_of_a_worker_that_restarts_removes_no_folder_of_the_next_one(status_file: StatusFile) -> None:
    """SIGHUP: the same process, and so the same identity; the old supervisor may end later."""
    after = StatusFile.open()
    StatusFile(status_file.folder, os.dup(status_file.fd)).close()
    assert after.folder.exists()


def test_where_there_is_no_shared_memory_a_folder_of_the_system_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MEMORY", tmp_path / "none")
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path))
    assert StatusFile.open().folder.parent == tmp_path


def test_processes_of_the_worker_see_at_once_whether_it_sends_task_events(status_file: StatusFile) -> None:
    other = StatusFile(status_file.folder, os.dup(status_file.fd))
    assert not status_file.events
    status_file.events = True
    assert other.events
    other.events = False
    assert not status_file.events
