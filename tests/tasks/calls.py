"""One call of `coordinator …`, and what it said."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tasks.member import Member
from tasks.nodelist import write_nodelist
from tests.commands import environment

Done = subprocess.CompletedProcess[str]
Run = Callable[..., Done]


def called(folder: Path, own: Mapping[str, str], *args: str) -> Done:
    argv = [sys.executable, "-m", "coordinator.cli", "-A", "tasks", *args]
    return subprocess.run(argv, cwd=folder, env=environment(**own), capture_output=True, text=True, timeout=60)


def told(done: Done) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def refused(done: Done) -> str:
    """Its one line on stderr."""
    assert (done.returncode, done.stdout) == (1, ""), done.stdout
    (line,) = done.stderr.splitlines()
    return line


def document(folder: Path, *members: Member) -> str:
    path = folder / "given.xml"
    path.write_bytes(write_nodelist(members))
    return str(path)
