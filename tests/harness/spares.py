"""Spares of a program that was started warm: forks made before it ran, each of which becomes a program that it starts.

A node starts its clock, and the clock its errands, as new processes; `coordinator up` starts nodes and beats. Loading
the libraries again costs them more than most tests do with them. A spare has loaded them, and knows nothing of what its
parent has done since: it becomes what a new process would be, its parent's child. Where none is left a program starts
as a user's does, so a second clock does.
"""

import ctypes
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from coordinator.local.leash import PR_SET_PDEATHSIG
from coordinator.local.leash import __file__ as LEASH

CLOCK = "coordinator.warden.clock"
OURS = (
    CLOCK, "coordinator.warden.errands",
    "bench.harvest", "bench.replicas", "examples.demo.member_server", "tests.harness.warm_server",
)  # fmt: skip
SPARE = "spare"
LONGEST = 1 << 20  # bytes of a message
MOST_FDS = 8
_LIBC = ctypes.CDLL(None)
_HIGH = 64  # no program of ours has so many open when it begins

_spares: list[tuple[int, socket.socket]] = []


def number_for(argv: Sequence[str]) -> int:
    """How many the program has use for: a node for its clock, a clock for its errands, `up` for nodes and beats."""
    if list(argv[:2]) == ["-m", "coordinator.cli"]:
        given = dict(pairwise(argv))
        return int(given.get("--nodes", 2)) + int(given.get("--beats", 2)) if {"up", "demo"} & {*argv} else 0
    return int(list(argv[:2]) == ["-m", CLOCK] or (list(argv[:2]) == ["-m", "celery"] and "worker" in argv))


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
        show(SPARE)
        with theirs:
            message, fds, _, _ = socket.recv_fds(theirs, LONGEST, MOST_FDS)
        if not message:
            os._exit(0)  # its parent has ended without a use for it
        return become(json.loads(message), fds)
    if number:
        subprocess.Popen = _Popen  # type: ignore[misc]
    return None


def show(*argv: str) -> None:
    """As its command line; else `ps` and psutil would show that of the process from which all are forked."""
    begin, end = (int(one) for one in Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    shown = "\0".join(argv).encode()[: end - begin - 1]
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, shown, len(shown))


def become(program: dict[str, Any], fds: Sequence[int]) -> list[str]:
    """As a process that was just started so, with these descriptors as its `fds`; what it is to run."""
    if program.get("leash"):
        _LIBC.prctl(PR_SET_PDEATHSIG, program["leash"], 0, 0, 0)
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


def _ours(args: Sequence[str]) -> tuple[list[str], int]:
    """The `argv` of a program that a spare can become, or an empty one, and the signal that it gets when its parent
    dies, or 0.
    """
    argv, leash = list(args), 0
    if argv[1:4] == ["-I", "-S", LEASH]:
        leash, argv = int(signal.SIGKILL), argv[5:]
    if argv[:2] != [sys.executable, "-m"]:
        return [], 0
    node = argv[2] == "celery" and {"worker", "beat"} & {*argv}
    return (argv[1:], leash) if node or argv[2] in OURS else ([], 0)


class Became:
    """A spare that has become a program; what `subprocess.Popen` says and does, with two pipes at most."""

    def __init__(
        self,
        args: Sequence[str],
        *,
        stdin: IO[Any] | int | None = None,
        stdout: IO[Any] | int | None = None,
        stderr: IO[Any] | int | None = None,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        start_new_session: bool = False,
        bufsize: int = -1,
        text: bool = False,
    ) -> None:
        self.args = args
        self.returncode: int | None = None
        self.stdin: IO[Any] | None = None
        self.stdout: IO[Any] | None = None
        self.pid, ear = _spares.pop()
        opened, kind = [nowhere := os.open(os.devnull, os.O_RDWR)], "" if text else "b"
        if stdin == subprocess.PIPE:
            stdin, mine = os.pipe()
            opened.append(stdin)
            self.stdin = os.fdopen(mine, f"w{kind}", bufsize)
        if stdout == subprocess.PIPE:
            mine, stdout = os.pipe()
            opened.append(stdout)
            self.stdout = os.fdopen(mine, f"r{kind}", bufsize)
        standard = (nowhere if one == subprocess.DEVNULL else one for one in (stdin, stdout, stderr))
        given = {number: _fd(one, number) for number, one in enumerate(standard)} | {fd: fd for fd in pass_fds}
        argv, leash = _ours(args)
        program = {"argv": argv, "leash": leash, "session": start_new_session, "fds": list(given)}
        program |= {"folder": str(cwd or os.getcwd()), "env": dict(os.environ if env is None else env)}
        with ear:
            socket.send_fds(ear, [json.dumps(program).encode()], list(given.values()))
        for fd in opened:
            os.close(fd)

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
            try:
                pid, status = os.waitpid(self.pid, how)
            except ChildProcessError:  # somebody else has waited for it; Popen says 0 then, too
                pid, status = self.pid, 0
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def _fd(given: IO[Any] | int | None, own: int) -> int:
    if given is None:
        return own
    return given if isinstance(given, int) else given.fileno()


class _Popen(subprocess.Popen):  # type: ignore[type-arg]
    """Starts these programs of ours as spares, as long as there are any."""

    def __new__(cls, args: Any, *more: Any, **options: Any) -> Any:
        if _spares and _ours(args)[0]:
            return Became(args, *more, **options)
        return super().__new__(cls)
