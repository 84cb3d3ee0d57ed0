"""One turn of one lock: alone, and as one that eight processes want.

Alone, one process takes and releases it as fast as it can. Wanted, each of eight holds it for a millisecond, over and
over: the figures are how often one of them held it in a second, and the longest wait of any of the eight. Eight that
take turns wait for seven others at most.
"""

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench.peers.environments import KEPT, ROOT
from bench.peers.field import Holder
from bench.peers.turns import Stage, answer, ended

WAITERS, HOLD = 8, 0.001


class Contest(NamedTuple):
    """us of a lock and its release, alone; how often a second one of eight holds it; their longest wait in ms."""

    alone: float
    held: float
    longest: float


def contest(stage: Stage, holder: Holder, python: Path, seconds: float) -> Contest:
    ((held, _),) = run(stage, holder, python, seconds, 1, 0.0)
    wanted = run(stage, holder, python, seconds, WAITERS, HOLD)
    times, waits = zip(*wanted, strict=True)
    return Contest(seconds / held * 1e6, sum(times) / seconds, max(waits) * 1e3)


def run(
    stage: Stage, holder: Holder, python: Path, seconds: float, processes: int, hold: float
) -> list[tuple[int, float]]:
    """How often each process held the lock, and its longest wait."""
    stage.clear()
    log = KEPT / "logs" / f"lock_{holder.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    argv = [str(python), "-m", "bench.peers.holder", holder.name, str(seconds), str(hold)]
    environ = os.environ | {"PEERS_REDIS": stage.url, "PEERS_MARKS": os.devnull, "PYTHONPATH": str(ROOT)}
    with ExitStack() as stack:
        output = stack.enter_context(log.open("w"))
        everyone = [
            stack.enter_context(
                ended(
                    subprocess.Popen(
                        argv, env=environ, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                        stderr=output,
                    )
                )
            )
            for _ in range(processes)
        ]  # fmt: skip
        for process in everyone:
            answer(process)
        for process in everyone:
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        said = [answer(process) for process in everyone]
    return [(one["held"], one["longest"]) for one in said]
