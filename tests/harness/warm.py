"""Python programs of the tests, started in processes that have the libraries loaded already.

Loading them costs more than most programs do. So one process loads them once for each test process, and forks for
each program (tests/harness/warm_server.py). The app of `tasks` is imported anew in each, since it reads the environment
as it is imported. A program that must be without a library, or patches one, starts by Popen.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from subprocess import PIPE
from typing import IO, Any, Self

ROOT = Path(__file__).parents[2]


class Started:
    """A program that was started; what `subprocess.Popen` says and does, with text in its pipes."""

    def __init__(self, ear: socket.socket, args: Sequence[str]) -> None:
        self.args = list(args)
        self.returncode: int | None = None
        self.stdin: IO[str] | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        self._ear = ear
        weakref.finalize(self, ear.close)  # holds it until then: a cycle might have the socket collected first
        self._hearing = threading.Lock()
        self.pid = self._hear("began")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        self.wait()

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe:
                with suppress(BrokenPipeError):
                    pipe.close()

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """All that it says from now on, once it heard that there is no more to come."""
        if self.stdin:
            self.stdin.close()
        said = [pipe.read() if pipe else "" for pipe in (self.stdout, self.stderr)]
        self.wait(timeout)
        return said[0], said[1]

    def poll(self) -> int | None:
        return self._heard(0)

    def wait(self, timeout: float | None = None) -> int:
        if self._heard(timeout) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def _heard(self, timeout: float | None) -> int | None:
        """A second thread that only looks does not wait for one that waits."""
        if self._hearing.acquire(timeout != 0):
            try:
                if self.returncode is None:
                    self._ear.settimeout(timeout)
                    with suppress(TimeoutError, BlockingIOError):
                        self.returncode = self._hear("ended")
            finally:
                self._hearing.release()
        return self.returncode

    def _hear(self, what: str) -> int:
        said, _, number = self._ear.recv(64).decode().partition(" ")
        assert said == what, f"{self.args} {said or 'lost its server'} {number}"
        return int(number)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


Process = subprocess.Popen[bytes] | Started


class _Server:
    """One for each test process."""

    def __init__(self) -> None:
        self._control, theirs = _pair()
        self._asking = threading.Lock()
        with theirs:
            argv = [sys.executable, "-m", "tests.harness.warm_server", str(theirs.fileno()), 500 * "-"]
            self._process = subprocess.Popen(argv, cwd=ROOT, pass_fds=[theirs.fileno()], start_new_session=True)
        atexit.register(self.end)

    def start(self, program: Mapping[str, Any], standard: Sequence[int]) -> Started:
        ear, theirs = _pair()
        with theirs, self._asking:
            message = json.dumps(program).encode()
            assert socket.send_fds(self._control, [message], [*standard, theirs.fileno()]) == len(message)
            return Started(ear, program["argv"])

    def end(self) -> None:
        self._control.close()
        self._process.kill()
        self._process.wait()


def _pair() -> tuple[socket.socket, socket.socket]:
    """A message is read whole, and alone."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


@cache
def _server() -> _Server:
    return _Server()


def start(
    argv: Sequence[str],
    folder: Path = ROOT,
    env: Mapping[str, str] | None = None,
    *,
    stdin: IO[Any] | int | None = None,
    stdout: IO[Any] | int | None = None,
    stderr: IO[Any] | int | None = None,
    session: bool = False,
) -> Started:
    """As `python -m …`, `python -c …` or `python FILE …` there, with this environment alone, or that of this process;
    `stdin`, `stdout` and `stderr` as for Popen, but nothing comes in where none is given; `session`: in a new one.
    """
    program = {"argv": list(argv), "folder": str(folder), "env": dict(os.environ if env is None else env)}
    with ExitStack() as stack:
        standard, ours = list[int](), list[IO[str] | None]()
        for number, given in enumerate((stdin, stdout, stderr)):
            theirs, mine = _end(number, given, stack)
            standard.append(theirs)
            ours.append(mine)
        started = _server().start(program | {"session": session}, standard)
    started.stdin, started.stdout, started.stderr = ours
    return started


def _end(number: int, given: IO[Any] | int | None, stack: ExitStack) -> tuple[int, IO[str] | None]:
    """The descriptor of a program's stdin, stdout or stderr, and ours where it is a pipe."""
    if given is None:
        return (stack.enter_context(open(os.devnull)).fileno() if number == 0 else number), None
    if not isinstance(given, int):
        return given.fileno(), None
    if given != PIPE:
        return given, None
    reading, writing = os.pipe()
    theirs, mine = (reading, writing) if number == 0 else (writing, reading)
    stack.callback(os.close, theirs)
    return theirs, os.fdopen(mine, "w" if number == 0 else "r")


def python(
    argv: Sequence[str], folder: Path, env: Mapping[str, str], timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """The same, run to its end."""
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        process = start(argv, folder, env, stdout=out, stderr=err)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        said = (Path(one.name).read_text() for one in (out, err))
        return subprocess.CompletedProcess(list(argv), status, *said)


def at_once(number: int, imports: str, code: str) -> str:
    """A program of which so many processes run `code`, each as the `number`th; it fails where one of them does."""
    return f"""
import os, sys
{imports}
for number in range({number}):
    if not os.fork():
        break
else:
    sys.exit(any([os.wait()[1] for _ in range({number})]))
{code}
"""
