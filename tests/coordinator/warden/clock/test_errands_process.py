"""A process beside another, such as the errands: real processes that hang, end, or cannot begin."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from coordinator.fleet import processes
from coordinator.store.values import Json
from coordinator.warden.companion import Companion, LineReader
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

APP = """
import ctypes, os, threading, time
from celery import Celery
from coordinator import Coordinator

FOLDER = {folder!r}
app = Celery("shop", broker={broker!r}, set_as_current=False)
coordinator = Coordinator(app, url={url!r}, prefix={prefix!r})


class Mischief:
    def __init__(self, node):
        pass

    def start(self):
        count = len(os.listdir(FOLDER))
        open(os.path.join(FOLDER, str(os.getpid())), "w").close()
        if {how!r} == "end" and count == 0:
            os._exit(3)
        if {how!r} == "hold" and count == 0:
            threading.Thread(target=self.hold, daemon=True).start()

    def hold(self):
        time.sleep(1)
        ctypes.PyDLL(None).sleep(60)  # without giving up the interpreter's lock

    def stop(self):
        pass


coordinator.warden_plugin(Mischief)
"""


def charge() -> dict[str, Json]:
    return {"node": "one", "incarnation": "a", "clock": processes.identity()}


def companion(place: str, board: Path) -> Companion:
    return Companion("the errands", ["-m", "coordinator.warden.errands", place], board / "errands", 2.0, 180.0)


class Errands:
    def __init__(self, server: RedisServer, prefix: str, folder: Path, how: str) -> None:
        self.began = folder / "began"
        self.began.mkdir()
        self.board = folder / "board"
        self.board.mkdir()
        place = folder / "shop.py"
        place.write_text(
            APP.format(folder=str(self.began), broker=server.url(1), url=server.url(0), prefix=prefix, how=how)
        )
        self.place = f"{place}:app"
        self.process = self.made()

    def made(self) -> Companion:
        return companion(self.place, self.board)

    def look(self) -> None:
        self.process.look(charge)

    def pids(self) -> list[int]:
        return [int(path.name) for path in self.began.iterdir()]

    def began_twice(self) -> bool:
        self.look()
        return len(self.pids()) == 2


@pytest.mark.parametrize("how", ["hold", "end"])
def test_errands_that_are_silent_or_end_are_started_again(
    redis_server: RedisServer, prefix: str, tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    errands = Errands(redis_server, prefix, tmp_path, how)
    wait_until(errands.began_twice, 30)
    assert ("silent" if how == "hold" else "exit 3") in caplog.text
    errands.process.stop()
    assert not any(psutil.pid_exists(pid) for pid in errands.pids())


def test_errands_that_a_killed_clock_left_are_killed_by_the_next_one(
    redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    errands = Errands(redis_server, prefix, tmp_path, "nothing")
    errands.look()
    wait_until(errands.pids, 30)
    (first,) = errands.pids()
    after = errands.made()
    after.look(charge)
    wait_until(lambda: psutil.Process(first).status() == psutil.STATUS_ZOMBIE, 10)
    errands.process.stop()
    after.stop()


@pytest.mark.timeout(60)
def test_a_long_first_line_never_holds_up_the_one_above_and_comes_before_all_others(tmp_path: Path) -> None:
    """As of an app with two thousand tasks, while its companion imports."""
    heard, imported = tmp_path / "heard", tmp_path / "imported"
    code = f"""
import os, sys, time
while not os.path.exists({str(imported)!r}): time.sleep(0.01)
for line in sys.stdin: open({str(heard)!r}, "a").write(line)
"""
    slow = Companion("the slow one", ["-c", code], tmp_path / "slow", 60.0, 60.0)

    def told() -> bool:
        slow.look(first)
        return slow.send({"ring": "me"})

    def first() -> dict[str, Json]:
        return {"tasks": "x" * 300_000}

    assert not told()
    imported.touch()
    wait_until(told, 20)
    slow.stop()
    lines = [json.loads(line) for line in heard.read_text().splitlines()]
    assert lines == [first(), {"ring": "me"}]


def test_a_fork_of_the_one_above_holds_none_of_the_pipes(tmp_path: Path) -> None:
    """So the end of its input tells a companion at once that it may end, and `stop` need not kill it."""
    code = f"import sys; sys.stdin.read(); open({str(tmp_path / 'ended')!r}, 'w').close()"
    reader = Companion("the reader", ["-c", code], tmp_path / "reader", 60.0, 60.0)
    reader.look(charge)
    if not (fork := os.fork()):
        signal.pause()
    try:
        reader.stop()
        assert (tmp_path / "ended").exists()
    finally:
        os.kill(fork, signal.SIGKILL)
        os.waitpid(fork, 0)


def test_a_companion_ends_with_the_one_above_also_where_its_input_stays_open() -> None:
    with subprocess.Popen(["sleep", "600"]) as above:
        who = f"{above.pid}.{processes.birth(above.pid)}"
        reading, writing = os.pipe()
        with os.fdopen(reading) as source:
            reader = LineReader(source, who, print)
            reader.start()
            try:
                assert not reader.ended(0)
                above.kill()
                wait_until(lambda: reader.ended(0), 10)
            finally:
                above.kill()
                os.close(writing)
                reader.join()


def test_a_silence_in_which_the_one_above_stood_still_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Both were stopped, and it is the first to go on."""
    code = "import os, sys, time; os.write(int(sys.argv[1]), b'.'); time.sleep(600)"
    sleeper = Companion("the sleeper", ["-c", code], tmp_path / "sleeper", 20.0, 20.0)
    sleeper.look(charge)
    wait_until(lambda: sleeper.look(charge) or sleeper.signed, 10)  # type: ignore[func-returns-value]
    monkeypatch.setattr(sleeper, "_looked", sleeper._looked - 3600)
    sleeper.look(charge)
    assert "silent" not in caplog.text
    process = sleeper._process
    assert process is not None
    while "silent" not in caplog.text:
        monkeypatch.setattr(sleeper, "_looked", sleeper._looked - 6)
        sleeper.look(charge)
    assert process.wait(10) == -signal.SIGKILL
    sleeper.stop()


def test_an_app_that_cannot_be_imported_is_tried_less_and_less_often(tmp_path: Path) -> None:
    board = tmp_path / "board"
    board.mkdir()
    errands = companion("no.such.app:app", board)
    until, starts = time.monotonic() + 4, 0
    before = None
    while time.monotonic() < until:
        errands.look(charge)
        if errands._process is not before and errands._process is not None:
            before, starts = errands._process, starts + 1
        time.sleep(0.02)
    assert 1 <= starts <= 3
    errands.stop()
