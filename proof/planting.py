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

from proof.faults import FAULTS, Fault

ROOT = Path(__file__).parent.parent
APART = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
PATIENCE = 300


class Run(NamedTuple):
    """`said`: the last line of pytest."""

    passed: bool
    failed: bool
    said: str
    text: str


def run(tree: Path, test: str) -> Run:
    """A test that another guard, a broken import or a skip kept from its question has neither passed nor failed."""
    pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", test]
    paths = os.pathsep.join([str(tree), str(tree / "tests" / "harness" / "lean")])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(pytest, cwd=tree, env=environment, capture_output=True, text=True, timeout=PATIENCE)
        text, status = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired:
        text, status = f"no end within {PATIENCE} s", -1
    said = text.strip().rpartition("\n")[2].strip("= ")
    passed = status == 0 and bool(re.search(r"\d+ passed", said))
    failed = status == 1 and bool(re.search(r"\d+ failed", said))
    return Run(passed, failed, said, text)


def without_its_guard(fault: Fault) -> Run:
    with tempfile.TemporaryDirectory(prefix="proof-fault-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=APART, symlinks=True)
        place = tree / fault.place
        text = place.read_text()
        if text.count(fault.old) != 1:
            raise LookupError(f"{fault.name}: {fault.old!r} is not there once in {fault.place}")
        place.write_text(text.replace(fault.old, fault.new))
        return run(tree, fault.test)


def show(fault: Fault) -> bool:
    """True if its test tells a tree without the guard from this one."""
    click.echo(f"{fault.name} ({fault.commit}): {fault.story}\n       {fault.test}")
    red = without_its_guard(fault)
    click.echo(f"{'red  ' if red.failed else 'LIVES'}  without its guard in {fault.place}: {red.said}")
    green = run(ROOT, fault.test)
    click.echo(f"{'green' if green.passed else 'RED  '}  with it: {green.said}")
    for wrong in ([] if red.failed else [red]) + ([] if green.passed else [green]):
        click.echo(wrong.text[-3000:])
    return red.failed and green.passed


@click.command("fault")
@click.argument("name", type=click.Choice([fault.name for fault in FAULTS]), metavar="NAME")
def fault(name: str) -> None:
    """Take the guard against a fault of the past out of a copy of the tree: its test fails there, and passes here."""
    (planted,) = [fault for fault in FAULTS if fault.name == name]
    raise SystemExit(not show(planted))
