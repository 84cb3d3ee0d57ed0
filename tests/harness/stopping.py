"""Processes that stand still. SIGSTOP alone takes effect later: until the kernel next runs one of their threads to take
it in, the others go on, on a busy machine for ten milliseconds and more.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from tests.harness.waiting import wait_until

STILL = {"T", "t", "Z", "X"}  # stopped, by a debugger too, or ended


class Stoppable(Protocol):
    """`psutil.Process`, `subprocess.Popen` or `Started`."""

    @property
    def pid(self) -> int: ...

    def send_signal(self, number: int, /) -> object: ...


def stop(*processes: Stoppable) -> None:
    """Send all of them SIGSTOP. On return none of their threads acts before SIGCONT."""
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    wait_until_still(*(process.pid for process in processes))


def wait_until_still(*pids: int) -> None:
    """Until no thread of these processes acts; those that have ended do not. They were sent SIGSTOP."""
    wait_until(lambda: all(set(_states(pid)) <= STILL for pid in pids), what=lambda: f"{[*map(_of, pids)]} go on")


def group(leader: int) -> list[int]:
    """The processes of its group."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _fields(name)[2:3] == [str(leader)]]


def _of(pid: int) -> tuple[int, list[str]]:
    return pid, _states(pid)


def _states(pid: int) -> list[str]:
    """Those of its threads."""
    with suppress(OSError):
        return [state for thread in os.listdir(f"/proc/{pid}/task") for state in _fields(f"{pid}/task/{thread}")[:1]]
    return []


def _fields(place: str) -> list[str]:
    """State, parent, group and so on of a process or thread; none where it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{place}/stat").read_text().rpartition(")")[2].split()
    return []
