"""Start a server on harmed files, and compare what it holds with what each step had left."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import redis

from coordinator.errors import CoordinatorError
from proof.power.files import FOLDER, MANIFEST
from proof.power.load import Mark
from proof.power.server import Server, rewrite
from proof.power.states import State, look, same
from tests.harness.hand_node import Puppet


class Found(NamedTuple):
    """`started`: at once; `mended`: by what; `kept`: the number of the mark that it holds, -1 = as no step
    had left it; `stays`: it holds the same after one more step and one more start; `said`: the server's log.
    """

    started: bool
    mended: str
    kept: int
    stays: bool
    said: str


def trial(
    data: Path, program: str, marks: list[Mark], expected: int, rewritten: bool = False,
    then: Callable[[Server, int, bool], None] = lambda server, kept, stays: None,
) -> Found:  # fmt: skip
    """`data`: a harmed copy, which is used up. `expected`: the number of the mark. `rewritten`: right after the start,
    as operations.md says. `then`: with the server that runs in the end, and what it `kept`, and whether that `stays`.
    """
    server, harmed = Server(data, program), _files(data)
    started = server.starts()
    mended = "" if started else next((way for way in mends(program, data) if server.starts()), "")
    said = server.said()
    if not started and not mended:
        return Found(False, "", -1, False, said)
    try:
        with server.raw() as client:
            kept = which(marks, look(client), expected)
            if rewritten:
                rewrite(client)
        stays = _files(data) == harmed or stays_after_a_step(server)
        then(server, kept, stays)
    finally:
        server.kill()
    return Found(started, mended, kept, stays, said)


def _files(data: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (data / FOLDER).iterdir()}


def which(marks: list[Mark], state: State, expected: int) -> int:
    """The number of the mark that had this state; of several the nearest, and the later of two. -1: of none."""
    now = round(time.time() * 1000)
    for number in sorted(range(len(marks)), key=lambda number: (abs(number - expected), -number)):
        if same(marks[number].state, state, now):
            return number
    return -1


def mends(program: str, data: Path) -> Iterator[str]:
    """What operations.md advises, each applied before it is named: the server's own tool, which is the same program by
    another name, given the manifest as the server's log says, or the last file alone; or a new manifest.
    """
    tool = "valkey-check-aof" if "valkey" in Path(program).name else "redis-check-aof"
    folder = data / FOLDER
    last = max(folder.glob("*.incr.aof"))  # the manifest may be what is harmed
    for name, path in ((tool, folder / MANIFEST), (f"{tool} of its last file", last)):
        argv = [tool, "--fix", str(path)]
        if not subprocess.run(argv, executable=program, input=b"y\n", capture_output=True, check=False).returncode:
            yield name
    bases = list(folder.glob("*.base.rdb"))
    if len(bases) == len(list(folder.glob("*.incr.aof"))) == 1:
        kinds = ((bases[0].name, "b"), (last.name, "i"))
        lines = [f"file {name} seq {name.split('.')[2]} type {kind}\n" for name, kind in kinds]
        (folder / MANIFEST).write_text("".join(lines))
        yield "a new manifest"


def stays_after_a_step(server: Server, job_id: str = "later") -> bool:
    """One more step, and one more start: it holds the same. A file that a start left as it was needs no such look."""
    store = server.store()
    try:
        Puppet(store).submit("later", job_id=job_id)
    except (CoordinatorError, redis.RedisError):  # of a state that nobody wrote
        return False
    finally:
        store.close()
    with server.raw() as client:
        before = look(client)
        server.kill()
        return server.starts() and same(before, look(client), round(time.time() * 1000))
