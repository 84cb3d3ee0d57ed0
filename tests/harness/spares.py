"""Spares of a program that was started warm: forks made before it ran, each of which becomes a program that it starts.

A node starts its clock, and the clock its errands, as new processes. Loading the libraries again costs them more than
most tests do with them. A spare has loaded them, and knows nothing of what its parent has done since: it becomes what a
new process would be, its parent's child. Where none is left a program starts as a user's does, so a second clock does.
"""

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import psutil

BECOME = ("coordinator.clock", "coordinator.worker")
SPARE = "spare"
LONGEST = 1 << 20  # bytes of a message
MOST_FDS = 8
_LONGEST_NAME = 15  # bytes that Linux keeps
_HIGH = 64  # no program of ours has so many open when it begins

_spares: list[tuple[int, socket.socket]] = []


def number_for(argv: Sequence[str]) -> int:
    """How many the program `-m …` has use for: a node for its clock, a clock for its errands."""
    return int(list(argv[:2]) == ["-m", BECOME[0]] or (list(argv[:2]) == ["-m", "celery"] and "worker" in argv))


def keep(number: int) -> list[str] | None:
    """Fork so many spares. In each of them: the `argv` that it is to run, once its parent starts it."""
    for _ in range(number):
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if pid := os.fork():
            theirs.close()
            _spares.append((pid, mine))
            continue
        mine.close()
        for _, ear in _spares:
            ear.close()
        _spares.clear()
        name(SPARE)
        with theirs:
            message, fds, _, _ = socket.recv_fds(theirs, LONGEST, MOST_FDS)
        if not message:
            os._exit(0)  # its parent has ended without a use for it
        return become(json.loads(message), fds)
    if number:
        subprocess.Popen = _Popen  # type: ignore[misc]
    return None


def name(title: str) -> None:
    """As `ps` and `psutil.Process.name` show it; they would show the command line of the first process of all."""
    Path("/proc/self/comm").write_text(title[:_LONGEST_NAME])


def runs(process: psutil.Process, module: str) -> bool:
    """Is it `python -m MODULE`, started as a user's or as a spare? Not one that has ended since it was seen."""
    with suppress(psutil.NoSuchProcess):
        return process.name() == module[:_LONGEST_NAME] or module in process.cmdline()
    return False


def become(program: dict[str, Any], fds: Sequence[int]) -> list[str]:
    """As a process that was just started so, with these descriptors as its `fds`; what it is to run."""
    if program["session"]:
        os.setsid()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH) for fd in fds]
    for fd in fds:
        os.close(fd)
    for fd, number in zip(high, program.get("fds", range(3)), strict=True):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(program["env"])
    time.tzset()
    os.chdir(program["folder"])
    argv: list[str] = program["argv"]
    return argv


class Became:
    """A spare that has become a program; what `subprocess.Popen` says and does, with bytes in its pipe."""

    def __init__(
        self,
        args: Sequence[str],
        *,
        stdin: IO[Any] | int | None = None,
        stdout: IO[Any] | int | None = None,
        stderr: IO[Any] | int | None = None,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        start_new_session: bool = False,
    ) -> None:
        self.args = args
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        self.pid, ear = _spares.pop()
        theirs = -1
        if stdin == subprocess.PIPE:
            theirs, mine = os.pipe()
            self.stdin = os.fdopen(mine, "wb")
            stdin = theirs
        given = {0: _fd(stdin, 0), 1: _fd(stdout, 1), 2: _fd(stderr, 2)} | {fd: fd for fd in pass_fds}
        program = {"argv": list(args[1:]), "folder": os.getcwd(), "env": dict(os.environ if env is None else env)}
        with ear:
            message = json.dumps(program | {"session": start_new_session, "fds": list(given)}).encode()
            socket.send_fds(ear, [message], list(given.values()))
        if theirs >= 0:
            os.close(theirs)

    def poll(self) -> int | None:
        return self._look(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while self._look(0 if until is None else os.WNOHANG) is None:
            if until is not None and time.monotonic() >= until:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            time.sleep(0.01)
        assert self.returncode is not None
        return self.returncode

    def _look(self, how: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, how)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(9)


def _fd(given: IO[Any] | int | None, own: int) -> int:
    if given is None:
        return own
    return given if isinstance(given, int) else given.fileno()


class _Popen(subprocess.Popen):  # type: ignore[type-arg]
    """Starts these programs of ours as spares, as long as there are any."""

    def __new__(cls, args: Any, *more: Any, **options: Any) -> Any:
        if _spares and list(args[:2]) == [sys.executable, "-m"] and args[2] in BECOME:
            return Became(args, *more, **options)
        return super().__new__(cls)
