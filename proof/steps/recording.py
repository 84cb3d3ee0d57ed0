"""The recording of a seed's steps: written by recorder.lua into the logs of the servers, read from there as a tree.

A state of the store is what a step made of the state before. Where a server lost its last writes, or another took over
that lacked them, the next step begins at an older state: the steps that were lost are a branch that goes no further.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import runpy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import redis

from coordinator.core.store import library
from proof.model.raw import READ, text_of

HERE = Path(__file__).parent
RECORDER = HERE / "sitecustomize.py"
_LINE = re.compile(rb"^(\d+):[^#\n]*# (?:<lua> )?STEP(\+?) (.*)$", re.MULTILINE)


class Step(NamedTuple):
    """One call. `life`: of the library in the server's process; `before`, `after`: names of states, alike where it only
    reads, "" = an empty store; `begun`, `time`: µs, before it, and as it saw them, None = it did not look; `reply`:
    numbers are text; `error`: instead of a reply; `outside`: what the server answered of others, in order: how many
    listen, which process it is.
    """

    life: str
    before: str
    after: str
    name: str
    library: str
    prefix: str
    begun: int
    time: int | None
    args: list[str]
    reply: Any
    error: str | None
    outside: list[str]


class Look(NamedTuple):
    """The keys of an installation, all at once: `rows` as proof/model/raw.py reads them; `time`: µs."""

    state: str
    prefix: str
    time: int
    rows: list[Any]


@dataclass
class Recording:
    """`logs`: the steps of each server, by its name, in the order in which it did them."""

    logs: dict[str, list[Step]] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)

    def read_logs(self, paths: Iterable[Path]) -> None:
        self.logs = {str(path): list(steps_of(path.read_bytes())) for path in paths}

    def look(self, client: redis.Redis, prefix: str) -> None:
        """`client`: decodes nothing."""
        state, (seconds, micros), rows = client.eval(_LOOK, 1, prefix)
        self.looks.append(Look(state.decode(), prefix, int(seconds) * 1_000_000 + int(micros), text_of(rows)))

    def save(self, path: Path) -> None:
        about = {"logs": self.logs, "looks": self.looks}
        with lzma.open(path, "wt", encoding="utf-8", errors="surrogateescape", preset=1) as out:
            json.dump(about, out, ensure_ascii=False)

    @classmethod
    def load(cls, path: Path) -> Self:
        with lzma.open(path, "rt", encoding="utf-8", errors="surrogateescape") as file:
            about = json.load(file)
        logs = {name: [Step(*step) for step in steps] for name, steps in about["logs"].items()}
        return cls(logs, [Look(*look) for look in about["looks"]])

    def looked(self, prefix: str, way: Sequence[Step]) -> dict[int, Look]:
        """What somebody saw on this way, by the place of the last step before the look: one that only reads the same
        state may come after it, when keys with an end have ended.
        """
        looks, places = {look.state: look for look in self.looks if look.prefix == prefix}, dict[str, int]()
        for place, step in enumerate(way):
            if step.after in looks and step.begun <= looks[step.after].time:
                places[step.after] = place
        return {place: looks[state] for state, place in places.items()}

    def prefixes(self) -> list[str]:
        return sorted({step.prefix for steps in self.logs.values() for step in steps})

    def last(self, prefix: str) -> str:
        """The state that somebody looked at last, else that of the last step."""
        looked = [look.state for look in self.looks if look.prefix == prefix]
        return looked[-1] if looked else [step.after for steps in self.steps(prefix) for step in steps][-1]

    def steps(self, prefix: str) -> list[list[Step]]:
        """Of one installation, by server."""
        return [[step for step in steps if step.prefix == prefix] for steps in self.logs.values()]


_LOOK = f"""
local time = redis.call('TIME')
return {{redis.call('GET', 'recorded:' .. KEYS[1]) or '', time, (function() {READ} end)()}}
"""


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
    life, before, after, function, keys, begun, time, args, reply, error, outside = line
    name, _, digest = function.rpartition("_")
    about = life, before, after, name, digest, keys[0]
    instant = _micros(time) if time else None
    return Step(*about, _micros(begun), instant, args or [], listed(reply), error, outside or [])


def listed(value: Any) -> Any:
    """An empty list of Lua is an empty object of JSON."""
    if value == {}:
        return []
    return [listed(one) for one in value] if isinstance(value, list) else value


def _micros(time: list[str]) -> int:
    return int(time[0]) * 1_000_000 + int(time[1])
