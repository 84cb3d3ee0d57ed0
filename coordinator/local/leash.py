"""Child processes that end with their parent, however the parent ends.

`leashed(argv)` puts a short Python program (this file, run as a script) before argv. It asks the kernel for a signal
when the parent dies, and then becomes the program itself, under the same pid. No Python code runs between fork and
exec, so a process with threads can use it safely.

The kernel counts the *thread* that forked as the parent, so only the main thread may start leashed processes. Only
Linux sends such a signal; elsewhere the program simply starts.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def leashed(argv: Sequence[str]) -> list[str]:
    """A command line that runs `argv`, which is killed when this process dies."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("start leashed processes from the main thread: each ends with the thread that starts it")
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *argv]


def become(parent: int, argv: list[str]) -> None:
    """Ask the kernel for SIGKILL at the parent's death, then run `argv` in place of this process."""
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
