"""A process that a test has stopped does nothing more, on a busy machine either."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from mmap import ACCESS_READ, mmap
from pathlib import Path

import psutil
import pytest

from tests.harness.stopping import group, stop
from tests.harness.waiting import wait_until

THREADS, BUSY, ROUNDS = 4, 4, 20
COUNTS = f"""
import mmap, sys, threading, time

def count(place):
    for number in range(1 << 62):
        place[:] = number.to_bytes(8, "big")
        time.sleep(0.0002)

with open(sys.argv[1], "r+b") as file:
    counts = memoryview(mmap.mmap(file.fileno(), {8 * THREADS}))
for number in range({THREADS}):
    threading.Thread(target=count, args=[counts[8 * number : 8 * number + 8]]).start()
"""


@pytest.fixture
def started(tmp_path: Path) -> Callable[[str], tuple[subprocess.Popen[bytes], mmap]]:
    with ExitStack() as stack:
        for _ in range(BUSY):
            busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(busy.kill)

        def start(name: str) -> tuple[subprocess.Popen[bytes], mmap]:
            (tmp_path / name).write_bytes(bytes(8 * THREADS))
            argv = [sys.executable, "-c", COUNTS, str(tmp_path / name)]
            process = stack.enter_context(subprocess.Popen(argv))  # in the session that is busy, which shares its time
            stack.callback(process.kill)
            file = stack.enter_context((tmp_path / name).open("rb"))
            return process, mmap(file.fileno(), 8 * THREADS, access=ACCESS_READ)

        yield start


def total(counts: mmap) -> int:
    read = counts[:]
    return sum(int.from_bytes(read[place : place + 8], "big") for place in range(0, len(read), 8))


def test_no_thread_of_a_stopped_process_acts_though_the_machine_is_busy(
    started: Callable[[str], tuple[subprocess.Popen[bytes], mmap]],
) -> None:
    (stopped, counts), (_, others) = started("stopped"), started("goes on")
    for _ in range(ROUNDS):
        before, aside = total(counts), total(others)
        wait_until(lambda: total(counts) > before + THREADS and total(others) > aside + THREADS)  # noqa: B023
        stop(stopped)
        before, aside = total(counts), total(others)
        wait_until(lambda: total(others) > aside + 10 * THREADS)  # noqa: B023
        assert total(counts) == before
        stopped.send_signal(signal.SIGCONT)


def test_one_that_has_ended_is_not_waited_for(
    started: Callable[[str], tuple[subprocess.Popen[bytes], mmap]],
) -> None:
    zombie, _ = started("zombie")
    assert zombie.pid in group(os.getpgid(zombie.pid))
    seen = psutil.Process(zombie.pid)
    zombie.kill()
    wait_until(lambda: seen.status() == psutil.STATUS_ZOMBIE)
    stop(seen)
    zombie.wait()
    stop(zombie)
    with pytest.raises(psutil.NoSuchProcess):
        stop(seen)
