"""A process that another starts and watches, such as maintenance: real processes that hang, end, or cannot begin."""

import io
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from coordinator.core.fleet import processes
from coordinator.core.fleet.companion import Companion, LineReader
from coordinator.core.store.values import Json
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


coordinator.node_plugin(Mischief)
"""


def first_line() -> dict[str, Json]:
    return {"node": "one", "incarnation": "a", "supervisor": processes.identity()}


def companion(place: str, folder: Path) -> Companion:
    return Companion("maintenance", ["-m", "coordinator.core.maintenance", place], folder / "maintenance", 2.0, 180.0)


class Maintenance:
    def __init__(self, server: RedisServer, prefix: str, folder: Path, how: str) -> None:
        self.began = folder / "began"
        self.began.mkdir()
        self.folder = folder / "status"
        self.folder.mkdir()
        place = folder / "shop.py"
        place.write_text(
            APP.format(folder=str(self.began), broker=server.url(1), url=server.url(0), prefix=prefix, how=how)
        )
        self.place = f"{place}:app"
        self.process = self.made()

    def made(self) -> Companion:
        return companion(self.place, self.folder)

    def look(self) -> None:
        self.process.look(first_line)

    def pids(self) -> list[int]:
        return [int(path.name) for path in self.began.iterdir()]

    def began_twice(self) -> bool:
        self.look()
        return len(self.pids()) >= 2


@pytest.mark.parametrize("how", ["hold", "end"])
def test_maintenance_that_is_silent_or_ends_is_started_again(
    redis_server: RedisServer, prefix: str, tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    maintenance = Maintenance(redis_server, prefix, tmp_path, how)
    wait_until(maintenance.began_twice)
    assert ("silent" if how == "hold" else "exit 3") in caplog.text
    maintenance.process.stop()
    assert not any(psutil.pid_exists(pid) for pid in maintenance.pids())


def test_maintenance_that_a_killed_supervisor_left_is_killed_by_the_next_one(
    redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    maintenance = Maintenance(redis_server, prefix, tmp_path, "nothing")
    maintenance.look()
    wait_until(maintenance.pids)
    (first,) = maintenance.pids()
    after = maintenance.made()
    after.look(first_line)
    wait_until(lambda: psutil.Process(first).status() == psutil.STATUS_ZOMBIE)
    maintenance.process.stop()
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
    wait_until(told)
    slow.stop()
    lines = [json.loads(line) for line in heard.read_text().splitlines()]
    assert lines == [first(), {"ring": "me"}]


def test_a_fork_of_the_one_above_holds_none_of_the_pipes(tmp_path: Path) -> None:
    """So the end of its input tells a companion at once that it may end, and `stop` need not kill it."""
    code = f"import sys; sys.stdin.read(); open({str(tmp_path / 'ended')!r}, 'w').close()"
    reader = Companion("the reader", ["-c", code], tmp_path / "reader", 60.0, 60.0)
    reader.look(first_line)
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
                wait_until(lambda: reader.ended(0))
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
    sleeper.look(first_line)
    wait_until(lambda: sleeper.look(first_line) or sleeper.signed)  # type: ignore[func-returns-value]
    monkeypatch.setattr(sleeper, "_last_look", sleeper._last_look - 3600)
    sleeper.look(first_line)
    assert "silent" not in caplog.text
    process = sleeper._process
    assert process is not None
    while "silent" not in caplog.text:
        monkeypatch.setattr(sleeper, "_last_look", sleeper._last_look - 6)
        sleeper.look(first_line)
    assert process.wait(60) == -signal.SIGKILL
    sleeper.stop()


def test_an_app_that_cannot_be_imported_is_tried_less_and_less_often(tmp_path: Path) -> None:
    folder = tmp_path / "status"
    folder.mkdir()
    maintenance = companion("no.such.app:app", folder)
    until, starts = time.monotonic() + 4, 0
    before = None
    while time.monotonic() < until:
        maintenance.look(first_line)
        if maintenance._process is not before and maintenance._process is not None:
            before, starts = maintenance._process, starts + 1
        time.sleep(0.02)
    assert 1 <= starts <= 3
    maintenance.stop()


def test_a_line_that_cannot_be_read_is_not_taken_for_the_end_of_the_worker() -> None:
    heard: list[object] = []
    source = io.StringIO('{"load": 1}\n{"cancel": "xxxx\nnull\n[1]\n' + "[" * 100_000 + '\n{"load": 2}\n')
    reader = LineReader(source, processes.identity(), heard.append)
    reader.start()
    reader.join()
    assert heard == [{"load": 1}, {"load": 2}]
