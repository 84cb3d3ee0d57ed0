"""The recording of a seed's steps: written by recorder.lua into the logs of the servers, read from there as a tree.

A state of the store is what a step made of the state before. Where a server lost its last writes, or another took over
that lacked them, the next step begins at an older state: the steps that were lost are a branch that goes no further.
"""

from __future__ import annotations

import json
import os
import re
import runpy
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from coordinator.store import library

HERE = Path(__file__).parent
RECORDER = HERE / "sitecustomize.py"
_LINE = re.compile(rb"^(\d+):[^#\n]*# (?:<lua> )?STEP(\+?) (.*)$", re.MULTILINE)


class Step(NamedTuple):
    """One call. `life`: of the library in the server's process; `before`, `after`: names of states, alike where it only
    reads, "" = an empty store; `unrung`: its caller rings no bells; `begun`, `time`: µs, before it, and as it saw them,
    None = it did not look; `reply`: numbers are text; `error`: instead of a reply.
    """

    life: str
    before: str
    after: str
    name: str
    library: str
    prefix: str
    unrung: bool
    begun: int
    time: int | None
    args: list[str]
    reply: Any
    error: str | None


@contextmanager
def recorded() -> Iterator[None]:
    """Programs that are started in this block leave their steps in the server's log, and so does this process."""
    before, assemble = os.environ.get("PYTHONPATH"), library.assemble
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), before]))
    runpy.run_path(str(RECORDER))
    try:
        yield
    finally:
        library.assemble = assemble
        library.current.cache_clear()
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def steps_of(log: bytes) -> Iterator[Step]:
    """In the order in which the server did them. One that was cut off as the server died is left out."""
    process, text = b"", b""
    for pid, more, part in _LINE.findall(log):
        text, process = (text + part if pid == process else part), pid
        if more:
            continue
        with suppress(ValueError):
            yield _step(json.loads(text.decode(errors="surrogateescape")))
        text = b""


def _step(line: list[Any]) -> Step:
    life, before, after, function, keys, begun, time, args, reply, error = line
    name, _, digest = function.rpartition("_")
    about = life, before, after, name, digest, keys[0], len(keys) > 1
    return Step(*about, _micros(begun), _micros(time) if time else None, args or [], reply, error)


def _micros(time: list[str]) -> int:
    return int(time[0]) * 1_000_000 + int(time[1])
