"""The processes of a swarm, as the world of a seed sees them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE

from proof.swarm import nodes_of, slots_of
from tests.harness.warm import Started, start

LEASE, NODE_TTL = 6, 8  # s
TIMES = {
    "COORDINATOR_SWEEP": "1", "COORDINATOR_HEARTBEAT": "2", "COORDINATOR_LOCK_TTL": str(LEASE),
    "COORDINATOR_NODE_TTL": str(NODE_TTL),
}  # fmt: skip
"""A hundred nodes that look around five times a second, as the others do, would take most of the steps. At each second
look a lease is renewed for the first time, so that one of 3 s has too little time left on a busy machine."""
SILENT = 1.2 * NODE_TTL, 2 * LEASE  # s


class Part:
    """One process, and its nodes. Started again, it has the same nodes and other incarnations."""

    def __init__(self, name: str, count: int, log: Path, environ: Mapping[str, str]) -> None:
        self._argv, self._log = ["-m", "proof.swarm", name, str(count)], log
        self.name, self.nodes = name, nodes_of(name, count)
        self.slots = [slot for node in self.nodes for slot in slots_of(node)]
        self._environ = {**os.environ, **environ}
        self._all: list[Started] = []
        self.start()

    @property
    def process(self) -> Started:
        """The one that was started last."""
        return self._all[-1]

    def start(self) -> None:
        with self._log.open("ab") as out:
            self._all.append(start(self._argv, env=self._environ, stdin=PIPE, stdout=out, stderr=out))

    def say(self, line: str) -> None:
        """`silence` or `speak`: to its first node."""
        with suppress(BrokenPipeError):
            print(line, file=self.process.stdin, flush=True)

    def drain(self) -> None:
        """Let its jobs end, and then it. Nobody waits for that."""
        assert self.process.stdin
        self.process.stdin.close()

    def kill(self) -> None:
        for process in self._all:
            process.kill()
            process.wait()


class Swarm:
    """`sizes`: how many nodes each process has."""

    def __init__(self, folder: Path, environ: Mapping[str, str], sizes: tuple[int, ...] = (34, 33, 33)) -> None:
        named = {f"s{number}": count for number, count in enumerate(sizes, 1)}
        self.parts = [Part(name, count, folder / f"{name}.log", environ) for name, count in named.items()]

    @property
    def nodes(self) -> list[str]:
        return [node for part in self.parts for node in part.nodes]

    def ended(self) -> list[str]:
        """Those that have ended by themselves."""
        return [f"{part.name}: {status}" for part in self.parts if (status := part.process.poll()) is not None]

    def end(self) -> None:
        for part in self.parts:
            part.kill()
