"""Mutants: defects of the library, each killed by a machine beside its model, and the faults of the past beside them.

docs/proof-mutants.md has them: a row says what to plant, and `python -m proof mutants` adds what killed it.
"""

from __future__ import annotations

import random
import re
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click
import redis

from coordinator.errors import CoordinatorError, InvalidJob
from proof.faults import FAULTS, IMAGINED, Fault
from proof.model.clock import library
from proof.model.depending import Depending
from proof.model.gathering import Gathering
from proof.model.grabbing import Grabbing
from proof.model.grabbing_jobs import GrabbingJobs
from proof.model.mutant import Mutant
from proof.model.starts import Starts
from proof.model.steps import Stepping
from proof.model.wholes import Whole
from proof.planting import ROOT, show, without_its_guard
from tests.harness.redis import RedisServer

MACHINES: dict[str, type[Stepping]] = {
    one.__name__: one for one in (Whole, Depending, Gathering, Grabbing, GrabbingJobs, Starts)
}
STEPS, FEW, MANY = 60, 400, 1600

PAGE = ROOT / "docs" / "proof-mutants.md"
SURVIVES = "**survives**"


class Row(NamedTuple):
    """`about`: its cells up to what killed it, which name it. `killed`: the other two, as the last run wrote them."""

    title: str
    about: str
    killed: str


def rows() -> list[Row]:
    """Of all tables of the page."""
    parts = ((part.partition("\n")[0], part) for part in PAGE.read_text().split("\n## ")[1:])
    return [
        Row(title, about, killed)
        for title, part in parts
        for about, killed in re.findall(r"^(\| `.*\|)([^|]*\|[^|]*\|)$", part, re.MULTILINE)
    ]


class Planted(NamedTuple):
    """A mutant, and the machine that is to kill it. `seldom`: courses meet it too seldom for the suite."""

    machine: type[Stepping]
    mutant: Mutant
    seldom: bool
    row: Row

    def courses(self) -> Iterator[int]:
        """First the one that killed it when its row was written, since it is likely to do so again."""
        yield from map(int, re.findall(r", course (\d+)", self.row.killed)[:1])
        yield from range(MANY if self.seldom else FEW)

    def kill(self, url: str) -> str:
        """What the machine summary to it; empty: it survives."""
        mutant = self.mutant
        faulty = type("Faulty", (self.machine,), {"url": url, "mutant": mutant, "exact": False})
        with redis.Redis.from_url(url) as client:
            client.function_load(library(mutant).text, replace=True)
            try:
                for number in self.courses():
                    faulty.course(number, STEPS)  # type: ignore[attr-defined]
            except InvalidJob:
                raise  # the machine is at fault
            except (AssertionError, CoordinatorError, redis.exceptions.ResponseError) as error:
                frames = traceback.extract_tb(error.__traceback__)
                where = [frame.name for frame in frames if "/model/" in frame.filename]
                summary = re.sub(r"[`|]", "", str(error).partition("\n")[0])
                shown = f": `{summary:.70}`" if summary else ""
                return f"{self.machine.__name__}.{where[-1]}, course {number}{shown}"
            finally:
                client.function_delete(library(mutant).name)
        return ""

    def kill_alone(self, url: str) -> str:
        """As `kill`; the course that killed it must hold without it."""
        killed = self.kill(url)
        for number in re.findall(r", course (\d+)", killed)[:1]:
            type("Here", (self.machine,), {"url": url}).course(int(number), STEPS)  # type: ignore[attr-defined]
        return killed


def mutants_of_page() -> Iterator[Planted]:
    """Those of the tables whose title names a machine."""
    for row in rows():
        if machine := re.search(r"\(`(\w+)`\)", row.title):
            mutant = Mutant.of(*(cell.strip() for cell in row.about.split("|")[1:-1]))
            yield Planted(MACHINES[machine[1]], mutant, "seldom" in row.title, row)


class Case(NamedTuple):
    """`about`: as in its row. `kill`: says what killed it, or "" where nothing did."""

    about: str
    kill: Callable[[str], str]


def cases() -> list[Case]:
    """All mutants, by machines and then by judges, and all faults."""
    planted = [Case(one.row.about, one.kill_alone) for one in mutants_of_page()]
    faults = (*IMAGINED, *FAULTS)
    return planted + [Case(f"| `{one.name}` | {one.story} |", partial(_by_its_test, one)) for one in faults]


def _by_its_test(fault: Fault, url: str) -> str:
    """Of a seed, what its judges summary: it is not played once more with the guard."""
    if not fault.test.startswith("seed "):
        return f"`{fault.test}`" if show(fault) else ""
    done = without_its_guard(fault)
    return f"{fault.test}: `{done.summary.split(' | ')[5]}`" if done.failed else ""


@click.command("model")
@click.option("--first", type=int, help="The first course; any by default.")
@click.option("--courses", default=2000, show_default=True)
def model(first: int | None, courses: int) -> None:
    """Hold the steps against the plain model: courses of 120 calls, drawn from their numbers. The first that fails ends
    it.
    """
    start = random.SystemRandom().randrange(10**9) if first is None else first
    with tempfile.TemporaryDirectory(prefix="proof-model-") as folder, RedisServer(Path(folder)) as server:
        here = type("Here", (Whole,), {"url": server.url(9)})
        for number in range(start, start + courses):
            try:
                here.course(number, 120)  # type: ignore[attr-defined]
            except Exception:
                click.echo(f"red: python -m proof model --first {number} --courses 1")
                raise
    click.echo(f"courses {start} to {start + courses - 1} hold")


@click.command("mutants")
@click.option("--part", default="1/1", show_default=True, help="I/N: the I-th of N portions.")
@click.option("--new", is_flag=True, help="Only those of which the page does not say yet what killed them.")
def mutants(part: str, new: bool) -> None:
    """Plant each mutant and each fault of the past, and write what killed it into docs/proof-mutants.md. A survivor is
    red: status 1.
    """
    number, of = map(int, part.split("/"))
    alive, known = 0, {row.about for row in rows() if row.killed.strip(" |")}
    chosen = [case for case in cases() if not (new and case.about in known)][number - 1 :: of]
    with tempfile.TemporaryDirectory(prefix="proof-mutants-") as folder, RedisServer(Path(folder)) as server:
        for case in chosen:
            began = time.monotonic()
            killed = case.kill(server.url(9))
            seconds = time.monotonic() - began
            alive += not killed
            click.echo(f"{'dead ' if killed else 'LIVES'} {seconds:6.1f} s  {case.about} {killed}")
            _write(case.about, f" {killed or SURVIVES} | {seconds:.1f} |")
    click.echo(f"{len(chosen)} planted, {alive} survive")
    raise SystemExit(alive > 0)


def _write(about: str, killed: str) -> None:
    """After each, so that a portion that is broken off leaves what it has seen. A fault that is new comes last."""
    text = PAGE.read_text()
    known = [line for line in text.splitlines() if line.startswith(about)]
    PAGE.write_text(text.replace(known[0], about + killed) if known else f"{text}{about}{killed}\n")
