"""A fault of the past, planted into a copy of the tree: its test fails there, and passes here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import click

from proof.checkers import CHECKERS, NOTHING
from proof.faults import FAULTS, IMAGINED, Fault

ROOT = Path(__file__).parent.parent
APART = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
PATIENCE = 600
_OF_TEST = re.compile(r"\d+ passed"), re.compile(r"\d+ failed")
_OF_SEED = (
    re.compile(rf" \| {NOTHING} \| "),
    re.compile(rf" \| [^|]*\b({'|'.join(one.__name__ for one in CHECKERS)}) \d+"),
)


class Run(NamedTuple):
    """`summary`: the last line of the output."""

    passed: bool
    failed: bool
    summary: str
    text: str


def run(tree: Path, test: str) -> Run:
    """Run a test of the suite, or `seed N`. One that an import or a skip stops has neither passed nor failed."""
    of_seed = test.startswith("seed ")
    pytest = ["pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", test]
    argv = [sys.executable, "-m", *(["proof", "run", test.removeprefix("seed ")] if of_seed else pytest)]
    paths = os.pathsep.join([str(tree), str(tree / "tests" / "harness" / "lean")])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(argv, cwd=tree, env=environment, capture_output=True, text=True, timeout=PATIENCE)
        text, status = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired:
        text, status = f"no end within {PATIENCE} s", -1
    summary = text.strip().rpartition("\n")[2].strip("= ")
    passed, failed = _OF_SEED if of_seed else _OF_TEST
    ends = bool(passed.search(summary)), bool(failed.search(summary))
    return Run(status == 0 and ends[0], status == 1 and ends[1], summary, text)


def without_its_guard(fault: Fault) -> Run:
    with tempfile.TemporaryDirectory(prefix="proof-fault-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=APART, symlinks=True)
        place = tree / fault.place
        text = place.read_text()
        for old, new in fault.parts():
            if text.count(old) != 1:
                raise LookupError(f"{fault.name}: {old!r} is not there once in {fault.place}")
            text = text.replace(old, new)
        place.write_text(text)
        return run(tree, fault.test)


def show(fault: Fault) -> bool:
    """True if the test fails without the guard, and passes in this tree."""
    click.echo(f"{fault.name} ({fault.commit}): {fault.story}\n       {fault.test}")
    red = without_its_guard(fault)
    click.echo(f"{'red  ' if red.failed else 'LIVES'}  without its guard in {fault.place}: {red.summary}")
    green = run(ROOT, fault.test)
    click.echo(f"{'green' if green.passed else 'RED  '}  with it: {green.summary}")
    for wrong in ([] if red.failed else [red]) + ([] if green.passed else [green]):
        click.echo(wrong.text[-3000:])
    return red.failed and green.passed


@click.command("fault")
@click.argument("name", type=click.Choice([one.name for one in (*FAULTS, *IMAGINED)]), metavar="NAME")
def fault(name: str) -> None:
    """Take the guard against a fault of the past out of a copy of the tree: its test fails there, and passes here."""
    (planted,) = [one for one in (*FAULTS, *IMAGINED) if one.name == name]
    raise SystemExit(not show(planted))
