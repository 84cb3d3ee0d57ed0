"""The clock's hand on the errands: real processes that hang, end, or cannot begin."""

import time
from pathlib import Path

import psutil
import pytest

from coordinator.clock.errands_process import ErrandsProcess
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

    def made(self) -> ErrandsProcess:
        return ErrandsProcess(self.place, {"node": "one", "incarnation": "a"}, self.board, patience=2.0)

    def pids(self) -> list[int]:
        return [int(path.name) for path in self.began.iterdir()]

    def began_twice(self) -> bool:
        self.process.look()
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
    errands.process.look()
    wait_until(errands.pids, 30)
    (first,) = errands.pids()
    after = errands.made()
    after.look()
    wait_until(lambda: psutil.Process(first).status() == psutil.STATUS_ZOMBIE, 10)
    errands.process.stop()
    after.stop()


def test_an_app_that_cannot_be_imported_is_tried_less_and_less_often(tmp_path: Path) -> None:
    board = tmp_path / "board"
    board.mkdir()
    errands = ErrandsProcess("no.such.app:app", {"node": "one", "incarnation": "a"}, board)
    until, starts = time.monotonic() + 4, 0
    before = None
    while time.monotonic() < until:
        errands.look()
        if errands._process is not before and errands._process is not None:
            before, starts = errands._process, starts + 1
        time.sleep(0.02)
    assert 1 <= starts <= 3
    errands.stop()
