"""Mutants: defects of the library, each killed by a machine beside its model, and the faults of the past beside them.

`python -m proof mutants` writes what killed each into the table of docs/proof-mutants.md.
"""

from __future__ import annotations

import random
import re
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click
import redis

from coordinator.errors import CoordinatorError, InvalidJob
from proof.faults import FAULTS, IMAGINED, Fault
from proof.model.clock import library
from proof.model.grabbing import Grabbing
from proof.model.grabbing_jobs import GrabbingJobs
from proof.model.mutants import endings, grabs, lanes, sorters, starts, takings, wardens
from proof.model.mutants.mutant import Mutant
from proof.model.starts import Starts
from proof.model.steps import Stepping
from proof.model.wholes import Whole
from proof.planting import ROOT, show, without_its_guard
from tests.harness.redis import RedisServer

LANES = (lanes, takings, endings, sorters, wardens)
MACHINES: dict[type[Stepping], list[Mutant]] = {
    Whole: [mutant for module in LANES for mutant in module.MUTANTS],
    Grabbing: grabs.MUTANTS,
    GrabbingJobs: grabs.OF_JOBS,
    Starts: starts.MUTANTS,
}
OFTEN = [(machine, mutant) for machine, mutants in MACHINES.items() for mutant in mutants]
SELDOM: list[tuple[type[Stepping], Mutant]] = [(Whole, mutant) for module in LANES for mutant in module.SELDOM]
STEPS, FEW, MANY = 60, 400, 1600

PAGE = ROOT / "docs" / "proof-mutants.md"
SURVIVES = "**survives**"


def killer(url: str, mutant: Mutant, machine: type[Stepping], courses: Iterable[int]) -> str:
    """What the machine said to it; empty: it survives."""
    faulty = type("Faulty", (machine,), {"url": url, "mutant": mutant, "exact": False})
    with redis.Redis.from_url(url) as client:
        client.function_load(library(mutant).text, replace=True)
        try:
            for number in courses:
                faulty.course(number, STEPS)  # type: ignore[attr-defined]
        except InvalidJob:
            raise  # the machine is at fault
        except (AssertionError, CoordinatorError, redis.exceptions.ResponseError) as error:
            where = [frame.name for frame in traceback.extract_tb(error.__traceback__) if "/model/" in frame.filename]
            said = re.sub(r"[`|]", "", str(error).partition("\n")[0])
            return f"{machine.__name__}.{where[-1]}, course {number}" + (f": `{said:.70}`" if said else "")
        finally:
            client.function_delete(library(mutant).name)
    return ""


def courses_of(mutant: Mutant, most: int) -> Iterator[int]:
    """First the one that killed it when its row was written, since it is likely to do so again; then so many."""
    row = rows().get(_first_cells(mutant.place, mutant.why), "")
    yield from map(int, re.findall(r", course (\d+)", row)[:1])
    yield from range(most)


class Case(NamedTuple):
    """`kill`: says what killed it, or "" where nothing did."""

    name: str
    breaks: str
    kill: Callable[[str], str]

    @property
    def first_cells(self) -> str:
        return _first_cells(self.name, self.breaks)


def _first_cells(name: str, breaks: str) -> str:
    return f"| `{name}` | {breaks} |"


def cases() -> list[Case]:
    """All mutants, by machines and then by judges, and all faults."""
    machines = [(machine, mutant, FEW) for machine, mutant in OFTEN]
    machines += [(machine, mutant, MANY) for machine, mutant in SELDOM]
    planted = [
        Case(
            mutant.place, mutant.why, partial(killer, mutant=mutant, machine=machine, courses=courses_of(mutant, most))
        )
        for machine, mutant, most in machines
    ]
    return planted + [Case(fault.name, fault.story, partial(_by_its_test, fault)) for fault in (*IMAGINED, *FAULTS)]


def _by_its_test(fault: Fault, url: str) -> str:
    """Of a seed, what its judges said: it is not played once more with the guard."""
    if not fault.test.startswith("seed "):
        return f"`{fault.test}`" if show(fault) else ""
    done = without_its_guard(fault)
    return f"{fault.test}: `{done.said.split(' | ')[5]}`" if done.failed else ""


def rows() -> dict[str, str]:
    """The rows of the page as it stands, by their first two cells."""
    return dict(re.findall(r"^(\| `[^|]*` \|[^|]*\|)(.*)$", PAGE.read_text(), re.MULTILINE))


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
@click.option("--new", is_flag=True, help="Only those of which the table has no row.")
def mutants(part: str, new: bool) -> None:
    """Plant each mutant and each fault of the past, and write what killed it into docs/proof-mutants.md. A survivor is
    red: status 1.
    """
    number, of = map(int, part.split("/"))
    every, known, alive = cases(), rows(), 0
    chosen = [case for case in every if not (new and case.first_cells in known)][number - 1 :: of]
    with tempfile.TemporaryDirectory(prefix="proof-mutants-") as folder, RedisServer(Path(folder)) as server:
        for case in chosen:
            began = time.monotonic()
            killed = case.kill(server.url(9))
            seconds = time.monotonic() - began
            alive += not killed
            click.echo(f"{'dead ' if killed else 'LIVES'} {seconds:6.1f} s  {case.name}: {case.breaks} | {killed}")
            _write(every, {case.first_cells: f" {killed or SURVIVES} | {seconds:.1f} |"})
    click.echo(f"{len(chosen)} planted, {alive} survive")
    raise SystemExit(alive > 0)


def _write(every: list[Case], more: dict[str, str]) -> None:
    """After each, so that a portion that is broken off leaves what it has seen."""
    known = {**rows(), **more}
    lines = [case.first_cells + known[case.first_cells] for case in every if case.first_cells in known]
    PAGE.write_text("\n".join([PAGE.read_text().partition("\n| `")[0].rstrip(), *lines, ""]))
