"""A program that is started warm says, does and leaves what it would as a process of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import psutil
import pytest

from tests.harness.warm import python, start

SAYS = "import os, sys; print(sys.argv[1:], os.getcwd(), dict(os.environ)); sys.exit(3)"
ECHOES = "import sys; print(sys.stdin.read().upper()); print('and this', file=sys.stderr)"


def test_it_has_the_arguments_folder_and_environment_given_and_no_other(tmp_path: Path) -> None:
    done = python(["-c", SAYS, "one", "two"], tmp_path, {"A": "b"})
    assert (done.returncode, done.stdout) == (3, f"['one', 'two'] {tmp_path} {{'A': 'b'}}\n")


def test_a_file_is_run_as_python_runs_it_beside_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("word = 'found'")
    (tmp_path / "program.py").write_text(
        "import sys, neighbour; print(neighbour.word, __name__, __file__, sys.argv[1:])"
    )
    said = [
        python(["program.py", "one"], tmp_path, {}).stdout,
        subprocess.run([sys.executable, "program.py", "one"], cwd=tmp_path, capture_output=True, text=True).stdout,
    ]
    assert said == [f"found __main__ {tmp_path / 'program.py'} ['one']\n"] * 2


def test_its_pipes_are_its_own(tmp_path: Path) -> None:
    with start(["-c", ECHOES], stdin=PIPE, stdout=PIPE, stderr=PIPE) as one, start(["-c", ECHOES], stdout=PIPE) as two:
        assert two.communicate() == ("\n", "")  # nothing comes in
        assert one.stdin
        one.stdin.write("word")
        assert one.communicate() == ("WORD\n", "and this\n")
    assert (one.returncode, two.returncode) == (0, 0)


def test_one_that_is_killed_is_gone_and_says_by_what() -> None:
    started = start(["-c", "import time; time.sleep(600)"], session=True)
    assert (started.poll(), os.getsid(started.pid)) == (None, started.pid)
    with pytest.raises(subprocess.TimeoutExpired):
        started.wait(0.01)
    started.kill()
    assert (started.wait(60), started.poll()) == (-signal.SIGKILL, -signal.SIGKILL)
    assert not psutil.pid_exists(started.pid)


@pytest.mark.parametrize("end", ["pass", "sys.exit(3)", "sys.exit('an end')"])
def test_it_ends_as_python_ends(end: str) -> None:
    code = f"""
import atexit, sys, threading
def last():
    threading.main_thread().join()
    print("its last thread")
atexit.register(print, "its end", file=sys.stderr)
threading.Thread(target=last).start()
{end}
"""
    with start(["-c", code], stdout=PIPE, stderr=PIPE) as warm:
        said = warm.communicate()
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (warm.returncode, *said) == (plain.returncode, plain.stdout, plain.stderr)
    assert ("its last thread" in said[0], "its end" in said[1]) == (True, True)
