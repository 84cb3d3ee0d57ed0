"""Starts child processes that the kernel kills when their parent dies, even of SIGKILL.

`leashed(argv)` returns a command line that runs this file as a script. The script asks the kernel to send SIGKILL when
the parent dies (PR_SET_PDEATHSIG), and then executes `argv` under the same pid. No Python code runs between fork and
exec in the parent, so a process with threads can use this safely.

The kernel sends the signal when the *thread* that forked ends, so only the main thread may start leashed processes.
The signal exists on Linux only; on other systems, children survive their parent.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def leashed(argv: Sequence[str]) -> list[str]:
    """A command line that runs `argv` as a process that the kernel kills when this process dies (on Linux). Raises
    RuntimeError outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "start leashed processes from the main thread: the kernel kills each when the thread that started it ends"
        )
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *argv]


def become(parent: int, argv: list[str]) -> None:
    """Ask the kernel to kill this process when its parent dies, then execute `argv` in place of this process. `parent`:
    the pid of the parent; if it has died already, exit.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:  # the parent died before the prctl
        sys.exit(1)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        sys.exit(f"cannot start {argv[0]}: {error.strerror}")


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2:])
