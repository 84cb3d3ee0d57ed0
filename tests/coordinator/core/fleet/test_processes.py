"""Processes are killed by their identity, whatever the system forbids."""

import errno
import os
import signal
import subprocess
from typing import Any

import pytest

from coordinator.core.fleet import processes


def refusing(number: int) -> Any:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


LACKS: dict[str, Any] = {
    "nothing": lambda patch: None,
    "pidfd_open is forbidden": lambda patch: patch.setattr(os, "pidfd_open", refusing(errno.EPERM)),
    "pidfd_open is unknown to the kernel": lambda patch: patch.setattr(os, "pidfd_open", refusing(errno.ENOSYS)),
    "no descriptor is left": lambda patch: patch.setattr(os, "pidfd_open", refusing(errno.EMFILE)),
    "pidfd_open is not in Python": lambda patch: patch.delattr(os, "pidfd_open"),
    "its signal is forbidden": lambda patch: patch.setattr(signal, "pidfd_send_signal", refusing(errno.EPERM)),
    "its signal is unknown": lambda patch: patch.setattr(signal, "pidfd_send_signal", refusing(errno.ENOSYS)),
}


@pytest.mark.parametrize("lack", LACKS)
def test_a_process_is_killed_and_never_another_one_of_its_pid(
    lack: str, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    LACKS[lack](monkeypatch)
    processes.kill(f"{sleeper.pid}.1")
    assert processes.condition(f"{sleeper.pid}.{processes.birth(sleeper.pid)}") == "alive"
    processes.kill(f"{sleeper.pid}.{processes.birth(sleeper.pid)}")
    assert sleeper.wait(60) == -signal.SIGKILL
    processes.kill(f"{sleeper.pid}.1")


def test_a_process_that_nobody_here_may_kill_is_logged_and_raises_nothing(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module, call in ((os, "pidfd_open"), (os, "kill")):
        monkeypatch.setattr(module, call, refusing(errno.EPERM))
    processes.kill(f"{sleeper.pid}.{processes.birth(sleeper.pid)}")
    monkeypatch.undo()
    assert f"cannot kill process {sleeper.pid}." in caplog.text
    assert sleeper.poll() is None
