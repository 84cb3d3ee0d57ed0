"""Identifies processes by pid and birth, checks whether they live, and kills them.

The system reuses pids, but no pair of pid and birth within one boot.
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
    """Send SIGKILL to exactly this process, if it still lives. Where the system gives no handle of a process, as in
    some containers, its birth is compared just before. One that this process may not kill is left alone, and logged.
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
    """A handle that stands for this process, and for none that gets its pid later; None if the system gives none."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):  # Python's build, a seccomp profile or the kernel lacks it
        yield None
        return
    try:
        yield handle
    finally:
        os.close(handle)


def _is_killed(handle: int) -> bool:
    """Kill a process by its handle; False if the system refuses that call."""
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):
        return False
    return True


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
