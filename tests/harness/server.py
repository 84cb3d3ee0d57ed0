"""A server that a test starts on a loopback port: it can be killed, paused and started again with what it had."""

import os
import re
import shutil
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.harness.ports import free_port
from tests.harness.stopping import group, wait_until_still
from tests.harness.waiting import wait_until


class NoServer(Exception):
    """The server is not on this machine, or does not start; the text says why."""


class Server(ABC):
    """`process` leads a session of its own, so that its helpers are killed and paused with it."""

    patience = 60.0
    """Seconds to answer after a start."""
    killed_by = signal.SIGKILL

    def __init__(self, log: Path) -> None:
        self.port = free_port()
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def argv(self) -> Sequence[str]:
        """The command line, on `port`."""

    def options(self) -> dict[str, Any]:
        """Popen's, beside the standard streams."""
        return {}

    def prepare(self) -> None:  # noqa: B027
        """Called once, before the first start within `with`."""

    def answers(self) -> bool:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            return True
        return False

    def start(self) -> None:
        self.process = self.run(*self.argv())
        wait_until(self._is_up, self.patience, lambda: f"it does not answer: {self._said()[-3000:]}")

    def run(self, *argv: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **self.options()
            )

    def _said(self) -> str:
        return self.log.read_text(errors="replace")

    def _is_up(self) -> bool:
        assert self.process
        if self.process.poll() is not None:
            raise NoServer(f"{self.process.args} ended: {self._said().strip()[-1000:]}")
        return self.answers()

    def kill(self) -> None:
        """As a power cut of this server alone would."""
        self.send_signal(self.killed_by)
        assert self.process
        self.process.wait(60)

    def pause(self) -> None:
        """Connections are accepted, and nothing is read: on return all its threads stand still."""
        self.send_signal(signal.SIGSTOP)
        assert self.process
        wait_until_still(*group(self.process.pid))

    def resume(self) -> None:
        self.send_signal(signal.SIGCONT)

    def send_signal(self, number: int) -> None:
        assert self.process
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def __enter__(self) -> Self:
        try:
            self.prepare()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.process:
            self.resume()
            self.kill()


def program(name: str, *places: str) -> str:
    """The newest in folders of these patterns, which Debian puts on no PATH, else the one on the PATH."""
    paths = [str(path) for place in places for path in Path("/").glob(f"{place.lstrip('/')}/{name}")]
    newest = max(paths, key=lambda path: [int(number) for number in re.findall(r"\d+", path)], default=None)
    if (path := newest or shutil.which(name)) is None:
        raise NoServer(f"no {name}: it is neither in {' or '.join(places)} nor on the PATH (make system)")
    return path
