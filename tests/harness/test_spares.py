"""A spare becomes what a new process would be; without a use it ends, and where none is left a program starts anew."""

from pathlib import Path

import psutil

from tests.harness.waiting import wait_until
from tests.harness.warm import python, start

ROOT = Path(__file__).parents[2]
STARTS = """
import os, subprocess, sys
from tests.harness import spares

if argv := spares.keep(1):
    said = (argv, sys.stdin.readline(), os.getcwd(), dict(os.environ), os.getsid(0) == os.getpid())
    os.write(int(argv[2]), repr(said).encode())
    sys.exit(3)

def started():
    command = [sys.executable, "-m", "coordinator.warden.clock", str(voice)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[voice], start_new_session=True)

os.chdir(sys.argv[1])
os.environ["A"] = "b"
ear, voice = os.pipe()
child = started()
child.stdin.write(b"a line\\n")
child.stdin.flush()
print(child.wait(10), child.poll() == child.returncode)
os.close(voice)
print(os.read(ear, 10000).decode())
again = subprocess.Popen([sys.executable, "-m", "coordinator.warden.clock", "1"], stdin=-3, stderr=-3)
print(type(child).__name__, type(again).__name__, again.wait(30) != 0)
"""


def test_it_has_what_its_parent_gives_it_and_a_second_program_is_a_new_process(tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(ROOT), "X": "y"}
    done = python(["-c", STARTS, str(tmp_path)], ROOT, env)
    assert done.returncode == 0, done.stderr
    ended, said, kinds = done.stdout.splitlines()
    assert ended == "3 True"
    argv, line, folder, environ, leads = eval(said)
    assert argv[:2] == ["-m", "coordinator.warden.clock"]
    assert (line, folder, environ, leads) == ("a line\n", str(tmp_path), env | {"A": "b"}, True)
    assert kinds == "Became _Popen True"


def test_one_without_a_use_ends_with_its_parent() -> None:
    started = start(["-c", "from tests.harness import spares; spares.keep(1); import time; time.sleep(600)"])
    wait_until(lambda: [child.cmdline()[0] for child in psutil.Process(started.pid).children()] == ["spare"])
    (spare,) = psutil.Process(started.pid).children()
    started.kill()
    started.wait(10)
    wait_until(lambda: not spare.is_running() or spare.status() == psutil.STATUS_ZOMBIE, 10)
