"""Processes that end with the one that started them, however that one ends.

`leashed(argv)` is argv behind a short Python program (this file, run as a script) that asks the kernel for a signal on
the parent's death and then becomes the program itself: same pid, nothing left in between. No code of ours runs between
fork and exec, so it is safe in a process with threads.

The kernel's parent is the *thread* that forked, so leashed processes are started from the main thread only. Where the
kernel has no such wish (it is Linux's), the program simply starts.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def leashed(argv: Sequence[str], death_signal: signal.Signals = signal.SIGKILL) -> list[str]:
    """The command line under which `argv` gets `death_signal` when this process dies."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("a leashed process ends with the thread that starts it: start it from the main thread")
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(int(death_signal)), *argv]


def become(parent: int, death_signal: int, argv: list[str]) -> None:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:  # it died before we asked
        sys.exit(1)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        sys.exit(f"cannot start {argv[0]}: {error.strerror}")


if __name__ == "__main__":
    become(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
