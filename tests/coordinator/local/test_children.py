"""Child processes, real ones; only their clock is turned by hand."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from coordinator.local.child import ChildSpec
from coordinator.local.children import Children
from tests.harness.command import gone
from tests.harness.waiting import wait_until

SLEEP = (sys.executable, "-c", "import time; time.sleep(600)")
DEAF = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)",
)
PARENT = (
    sys.executable,
    "-c",
    "import subprocess, time; print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)",
)
KEEPING = """
import sys, threading
from coordinator.local.child import ChildSpec
from coordinator.local.children import Children
children = Children([ChildSpec(name, ["sleep", "600"]) for name in "ab"], sys.argv[1])
children.start()
print(*[child.pid for child in children.all], flush=True)
threading.Event().wait()
"""


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def said(children: Children, index: int = 0) -> str:
    """What a child wrote, once it wrote anything."""
    log = children.all[index].log_file
    wait_until(lambda: log.exists() and log.read_text())
    return log.read_text()


def test_each_child_leads_its_own_session_and_writes_its_own_log(tmp_path: Path) -> None:
    say = ("sh", "-c", 'echo "I am $WHO"; exec sleep 600')
    specs = [ChildSpec("one", say, {"WHO": "the first"}), ChildSpec("two", say, {"WHO": "the second"})]
    with Children(specs, tmp_path / "logs") as children:
        assert said(children, 0) == "I am the first\n"
        assert said(children, 1) == "I am the second\n"
        assert [os.getsid(child.pid) for child in children.all] == [child.pid for child in children.all]


def test_a_child_that_dies_is_started_again_after_a_second(tmp_path: Path) -> None:
    clock = Clock()
    with Children([ChildSpec("one", SLEEP), ChildSpec("two", SLEEP)], tmp_path, clock) as children:
        first, second = children.all
        before, other = first.pid, second.pid
        os.kill(before, signal.SIGKILL)
        wait_until(first.dead)
        children.step()
        assert first.pid == 0
        clock.now += 0.9
        children.step()
        assert first.pid == 0
        clock.now += 0.1
        children.step()
        assert first.pid not in (0, before)
        assert second.pid == other


def test_the_waits_double_up_to_thirty_seconds_and_begin_anew_after_a_minute_alive(tmp_path: Path) -> None:
    clock = Clock()

    def wait_after_a_death(alive: float) -> int:
        """Whole seconds until the next start."""
        clock.now += alive
        os.kill(child.pid, signal.SIGKILL)
        wait_until(child.dead)
        children.step()
        died = clock.now
        while not child.pid:
            clock.now += 1
            children.step()
        return int(clock.now - died)

    with Children([ChildSpec("one", SLEEP)], tmp_path, clock) as children:
        child = children.all[0]
        assert [wait_after_a_death(alive=1) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
        assert [wait_after_a_death(alive=61), wait_after_a_death(alive=59)] == [1, 2]


def test_a_program_that_is_not_there_is_tried_again_and_its_log_says_so(tmp_path: Path) -> None:
    clock = Clock()
    with Children([ChildSpec("one", ["/no/such/program"])], tmp_path, clock) as children:
        child = children.all[0]
        wait_until(child.dead)
        assert "cannot start /no/such/program: No such file or directory" in said(children)
        children.step()
        clock.now += 1
        children.step()
        assert child.starts == 2


def test_what_a_dead_child_leaves_behind_is_killed_before_its_next_life(tmp_path: Path) -> None:
    with Children([ChildSpec("one", PARENT)], tmp_path) as children:
        grandchild = int(said(children))
        child = children.all[0]
        os.kill(child.pid, signal.SIGKILL)
        wait_until(child.dead)
        assert not gone(grandchild)
        children.step()
        wait_until(lambda: gone(grandchild))


def test_stopping_leaves_nothing_behind_and_starts_nothing_again(tmp_path: Path) -> None:
    with Children([ChildSpec("one", PARENT), ChildSpec("two", SLEEP)], tmp_path) as children:
        pids = [int(said(children)), *[child.pid for child in children.all]]
    wait_until(lambda: all(gone(pid) for pid in pids))
    assert [child.pid for child in children.all] == [0, 0]


def test_a_child_deaf_to_its_signal_is_killed_after_its_own_time(tmp_path: Path) -> None:
    with Children([ChildSpec("one", DEAF, stop_timeout=0.3)], tmp_path) as children:
        said(children)
        pid = children.all[0].pid
        begun = time.monotonic()
    assert gone(pid)
    assert 0.3 <= time.monotonic() - begun < 10, "a child that is not killed would be waited for without end"


def test_those_that_stop_together_wait_for_each_other_only_once(tmp_path: Path) -> None:
    specs = [ChildSpec(str(number), DEAF, stop_timeout=2) for number in range(4)]
    with Children(specs, tmp_path) as children:
        for index in range(4):
            said(children, index)
        begun = time.monotonic()
    assert 2 <= time.monotonic() - begun < 7.9


def test_an_interrupt_while_stopping_kills_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with Children([ChildSpec("one", DEAF)], tmp_path) as children:
        said(children)
        pid = children.all[0].pid
        monkeypatch.setattr(time, "sleep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            children.stop()
        monkeypatch.undo()
        assert gone(pid)


def test_the_children_of_a_killed_process_die_with_it(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", KEEPING, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        pids = [int(pid) for pid in process.stdout.readline().split()]
        wait_until(lambda: [psutil.Process(pid).name() for pid in pids] == ["sleep", "sleep"])
        process.kill()
    wait_until(lambda: all(gone(pid) for pid in pids))


def test_a_stop_says_at_once_and_each_second_for_whom_it_waits(tmp_path: Path) -> None:
    told: list[list[str]] = []
    specs = [ChildSpec(name, argv, stop_timeout=4.5) for name, argv in (("quick", SLEEP), ("deaf", DEAF))]
    with Children(specs, tmp_path, waits=told.append) as children:
        said(children, 1)
    both = [["quick", "deaf"]] if told[0] != ["deaf"] else []  # one that is quick may have ended by then
    each = len(told) - len(both)
    assert told == both + [["deaf"]] * each
    assert 3 <= each <= 5, "a busy machine leaves one out"
