"""A terminal of the tests: what a program wrote to it, and what stands on its screen."""

import fcntl
import os
import pty
import re
import struct
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pyte

from tests.harness.command import argv_of, environment
from tests.harness.warm import Started, start


class Terminal:
    def __init__(self, main: int, columns: int, lines: int) -> None:
        self._main = main
        self._read = b""
        self._lock = threading.Lock()
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.resize(columns, lines)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        with suppress(OSError):  # so it ends
            while part := os.read(self._main, 65536):
                with self._lock:
                    self._read += part
                    self._stream.feed(part)

    def read_all(self) -> None:
        """What was written before the last program left it may be on its way still."""
        self._listener.join(60)

    def resize(self, columns: int, lines: int) -> None:
        with self._lock:
            fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            self._screen.resize(lines, columns)

    @property
    def lines(self) -> list[str]:
        """All that was ever written, without colours and movements."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._read.decode(errors="replace")).splitlines()

    @property
    def screen(self) -> list[str]:
        """The lines that a person sees now."""
        with self._lock:
            return [line.rstrip() for line in self._screen.display]


@contextmanager
def on_a_terminal(*args: str, columns: int = 80, lines: int = 24) -> Iterator[tuple[Terminal, Started]]:
    """`coordinator …` of the service, until the body ends."""
    main, theirs = pty.openpty()
    terminal = Terminal(main, columns, lines)
    env = environment(TERM="xterm")
    for name in ("COLUMNS", "LINES"):  # rich would believe them
        env.pop(name, None)
    process = start(argv_of(*args)[1:], env=env, stdin=theirs, stdout=theirs, stderr=theirs, session=True)
    os.close(theirs)
    try:
        yield terminal, process
    finally:
        process.kill()  # takes everything with it
        process.wait()
        os.close(main)
