"""The command `coordinator`: called within a test, called as a process, or kept running with all that it starts.

`Call` invokes it in this process and gives click's result, `Run` runs it as a process; `told`, `loaded` and `refused`
read the answer of either.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

import psutil
from click.testing import Result

from tests.harness.produced import Produced
from tests.harness.waiting import wait_until
from tests.harness.warm import Process, python, start

ROOT = Path(__file__).parents[2]
Done = subprocess.CompletedProcess[str]
Call = Callable[..., Result]
Run = Callable[..., Done]
IMPORT = ("nodelist", "import", "--yes", "--why", "a test")
OURS = ("COORDINATOR_", "CELERY_", "TASKS_", "FLOWER_")


def environment(**given: str) -> dict[str, str]:
    """That of a user who has set nothing but `given`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return clean | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'harness' / 'lean'}"} | given


def exported(file: Path) -> dict[str, str]:
    """What another terminal has once it has read the file that `up` wrote."""
    lines = (shlex.split(line) for line in file.read_text().splitlines())
    return dict(words[1].split("=", 1) for words in lines if words[0] == "export")


def argv_of(*args: str) -> list[str]:
    """The service's command; `-m MODULE …` is a program of its own."""
    return [sys.executable, *(() if args[:1] == ("-m",) else ("-m", "coordinator", "-A", "tasks")), *args]


def called(folder: Path, own: Mapping[str, str], *args: str) -> Done:
    """The service's command, run to its end in that folder."""
    done = python(argv_of(*args)[1:], folder, environment(**own))
    Produced.printed(done.stdout + done.stderr)
    return done


def told(done: Done | Result) -> str:
    """What a command that succeeded printed."""
    assert _status(done) == 0, done.stdout + done.stderr
    return str(done.stdout).strip()


def loaded(done: Done | Result) -> Any:
    return json.loads(told(done))


def listed(done: Done | Result) -> list[Any]:
    """The rows of a list, `{noun: [...], "after": ...}`."""
    found = loaded(done)
    [rows] = [value for name, value in found.items() if isinstance(value, list) and name != "broken"]
    assert "after" in found
    return list(rows)


def refused(done: Done | Result) -> str:
    """The one line on stderr of a command that failed; 2: Redis does not answer."""
    assert (_status(done) in (1, 2), done.stdout) == (True, ""), done.stdout
    (line,) = done.stderr.strip().splitlines()
    return str(line)


def _status(done: Done | Result) -> int:
    return done.returncode if isinstance(done, subprocess.CompletedProcess) else done.exit_code


class Command:
    """`with Command(directory, "up", …) as up`: at the end all of its family is gone, however it went.

    `fresh`: it loads the libraries itself, as a user's command does.
    """

    def __init__(
        self,
        directory: Path,
        *args: str,
        env: Mapping[str, str] | None = None,
        fresh: bool = False,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._argv = argv_of(*args)
        self._fresh = fresh
        self._directory = directory
        self._env = environment(**(env or {}))
        self._family: dict[int, psutil.Process] = {}

    def __enter__(self) -> Self:
        with (self._directory / "out").open("wb") as out, (self._directory / "err").open("wb") as err:
            self.process = self._started(out, err)
        return self

    def _started(self, out: IO[bytes], err: IO[bytes]) -> Process:
        if not self._fresh:
            return start(self._argv[1:], self._directory, self._env, stdout=out, stderr=err, session=True)
        return subprocess.Popen(
            self._argv, cwd=self._directory, env=self._env, stdout=out, stderr=err, start_new_session=True
        )

    def __exit__(self, *_: object) -> None:
        for one in self.family():
            one.kill()
        self.process.kill()
        self.process.wait()

    @property
    def out(self) -> str:
        return (self._directory / "out").read_text()

    @property
    def err(self) -> str:
        return (self._directory / "err").read_text()

    def says(self, text: str, timeout: float = 60.0) -> None:
        def said() -> bool:
            assert self.process.poll() is None or text in self.out, f"it ended:\n{self.out}\n{self.err}"
            return text in self.out

        wait_until(said, timeout, lambda: f"{text!r} in\n{self.out}\n{self.err}")

    def family(self) -> list[psutil.Process]:
        """All that it started and that lives still, orphans too where they were seen before."""
        with suppress(psutil.NoSuchProcess):
            for one in psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else ():
                self._family.setdefault(one.pid, one)
        return [one for one in self._family.values() if _lives(one)]

    def member(self, word: str) -> psutil.Process:
        """The one of its own children whose command line has this word."""
        children = psutil.Process(self.process.pid).children()
        (found,) = (one for one in children if _lives(one) and word in " ".join(one.cmdline()))
        return found

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """Ask it to end; its exit status."""
        self.family()
        self.process.send_signal(number)
        return self.process.wait(60)


def gone(pid: int) -> bool:
    """Whether the process is no more; a zombie that its new parent has not buried yet is no more."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
