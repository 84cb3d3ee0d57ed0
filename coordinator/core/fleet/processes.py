"""Identifies processes by pid and start time ("birth"), checks whether they live, and kills them.

The system gives the pid of an ended process to a new one, but a pair of pid and start time is unique within one boot.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psutil

logger = logging.getLogger(__name__)


def birth(pid: int) -> str | None:
    """Return the start time of a process, as text in a unit of the system, only to be compared; None if the process is
    gone or a zombie.
    """
    status = _stat(pid)
    return status[1] if status and status[0] not in "ZX" else None


def identity() -> str:
    """Return the identity of this process: `<pid>.<birth>`."""
    return _identity_of(os.getpid())


@cache
def _identity_of(pid: int) -> str:
    """Return the identity of a process, `<pid>.<birth>`. Cached, as each runner needs it; a fork clears the cache."""
    return f"{pid}.{birth(pid)}"


os.register_at_fork(after_in_child=_identity_of.cache_clear)


def condition(process: str) -> str:
    """Return the state of the process with the identity `process`: `alive`, `stopped` (by SIGSTOP or a debugger) or
    `gone` (also a zombie).
    """
    pid, _, born = process.partition(".")
    status = _stat(int(pid))
    if not status or status[1] != born or status[0] in "ZX":
        return "gone"
    return "stopped" if status[0] in "Tt" else "alive"


def kill(process: str) -> None:
    """Send SIGKILL to the process with the identity `process`, if it still lives, and to no other that has its pid by
    now. Where the system offers no pidfd, as in some containers, only the start time is compared just before. Without
    the permission to kill the process, log an error.
    """
    pid, _, born = process.partition(".")
    try:
        with _handle(int(pid)) as handle:
            if birth(int(pid)) == born and not (handle and _is_killed(handle)):
                os.kill(int(pid), signal.SIGKILL)
    except ProcessLookupError:
        return
    except PermissionError as error:
        logger.error("cannot kill process %s: %s", process, error)


@contextmanager
def _handle(pid: int) -> Iterator[int | None]:
    """Open a pidfd: a file descriptor that stands for this process, and never for a later one with the same pid. Yields
    None if the system offers none.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):  # Python or the kernel has no `pidfd_open`, or seccomp forbids it
        yield None
        return
    try:
        yield handle
    finally:
        os.close(handle)


def _is_killed(handle: int) -> bool:
    """Send SIGKILL to a process by its pidfd `handle`; False if the system refuses the call `pidfd_send_signal`."""
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):
        return False
    return True


def _stat(pid: int) -> tuple[str, str] | None:
    """Return the state of a process, as the letter in /proc/<pid>/stat, and its start time; None if the process is
    gone. Raises OSError if neither can be read, which does not prove that the process is gone.
    """
    try:
        if Path("/proc/self/stat").exists():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return fields[0], fields[19]
        process = psutil.Process(pid)
        letters = {psutil.STATUS_ZOMBIE: "Z", psutil.STATUS_DEAD: "X", psutil.STATUS_STOPPED: "T"}
        return letters.get(process.status(), "S"), str(process.create_time()).replace(".", "-")
    except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
        return None
