"""Identifies processes by pid and birth, checks whether they live, and kills them.

The system reuses pids, but no pair of pid and birth within one boot.
"""

from __future__ import annotations

import os
import signal
from functools import cache
from pathlib import Path

import psutil


def birth(pid: int) -> str | None:
    """The start time of a process, as a text to compare; None if it is gone or a zombie."""
    status = _stat(pid)
    return status[1] if status and status[0] not in "ZX" else None


def identity() -> str:
    """`<pid>.<birth>` of this process."""
    return _identity_of(os.getpid())


@cache
def _identity_of(pid: int) -> str:
    """The text `<pid>.<birth>`. Cached, because each runner needs it; a fork clears the cache."""
    return f"{pid}.{birth(pid)}"


os.register_at_fork(after_in_child=_identity_of.cache_clear)


def condition(process: str) -> str:
    """The state of a process, named by its identity: `alive`, `stopped` (SIGSTOP, a debugger) or `gone`."""
    pid, _, born = process.partition(".")
    status = _stat(int(pid))
    if not status or status[1] != born or status[0] in "ZX":
        return "gone"
    return "stopped" if status[0] in "Tt" else "alive"


def kill(process: str) -> None:
    """Send SIGKILL to exactly this process, if it still lives."""
    pid, _, born = process.partition(".")
    try:
        if not hasattr(os, "pidfd_open"):
            if condition(process) != "gone":
                os.kill(int(pid), signal.SIGKILL)
            return
        handle = os.pidfd_open(int(pid))
        try:
            if birth(int(pid)) == born:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
    except ProcessLookupError:
        return


def _stat(pid: int) -> tuple[str, str] | None:
    """The state letter of a process, and its birth; None if it is gone. Raises OSError if the system cannot answer,
    which is no evidence that the process is gone.
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
