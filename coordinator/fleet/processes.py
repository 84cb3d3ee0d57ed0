"""The identity of a process, its pid and its birth; whether it lives, and how to end it.

The system uses a pid again, but never both within one boot.
"""

from __future__ import annotations

import os
import signal
from functools import cache
from pathlib import Path

import psutil


def birth(pid: int) -> str | None:
    """When the process began, as a text to compare; None when it is gone or a zombie."""
    found = _stat(pid)
    return found[1] if found and found[0] not in "ZX" else None


def identity() -> str:
    """`<pid>.<birth>` of this process."""
    return _identity_of(os.getpid())


@cache
def _identity_of(pid: int) -> str:
    """Each runner asks for it. A process that was forked asks anew."""
    return f"{pid}.{birth(pid)}"


os.register_at_fork(after_in_child=_identity_of.cache_clear)


def condition(who: str) -> str:
    """`alive`, `stopped` (SIGSTOP, a debugger) or `gone`: the process with this identity."""
    pid, _, born = who.partition(".")
    found = _stat(int(pid))
    if not found or found[1] != born or found[0] in "ZX":
        return "gone"
    return "stopped" if found[0] in "Tt" else "alive"


def kill(who: str) -> None:
    """Send SIGKILL to exactly this process, if it is there."""
    pid, _, born = who.partition(".")
    try:
        if not hasattr(os, "pidfd_open"):
            if condition(who) != "gone":
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
    """The state letter of a process, and its birth."""
    try:
        if Path("/proc/self/stat").exists():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return fields[0], fields[19]
        process = psutil.Process(pid)
        letters = {psutil.STATUS_ZOMBIE: "Z", psutil.STATUS_DEAD: "X", psutil.STATUS_STOPPED: "T"}
        return letters.get(process.status(), "S"), str(process.create_time()).replace(".", "-")
    except (OSError, psutil.Error):
        return None
