"""Portions of seeds, the list of what they showed, and a single one."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from pathlib import Path

import click

from proof.checkers import judge
from proof.history import History
from proof.page import page

LIST = Path(__file__).with_name("seeds.txt")


@click.command("portion")
@click.option("--minutes", default=30.0, show_default=True, help="As many seeds as fit.")
@click.option("--first", default=1, show_default=True, help="The first seed.")
@click.option("--seeds", default=0, help="So many seeds, whatever it takes.")
@click.option("--list", "kept", is_flag=True, help=f"Write each verdict into {LIST.name}.")
@click.pass_context
def portion(context: click.Context, minutes: float, first: int, seeds: int, kept: bool) -> None:
    """Play seeds: a fleet under a nemesis, and the judges of its history. Status 1 where one of them is red.

    Each line: seed, commit, what the world had, faults, jobs, runs, the verdict, and the history's checksum.
    """
    if context.invoked_subcommand:
        return
    end, red, longest = time.monotonic() + 60 * minutes, 0, 0.0
    for seed in itertools.count(first):
        if seed - first >= seeds if seeds else time.monotonic() + longest > end and seed > first:
            break
        began = time.monotonic()
        line, holds = _play(seed)
        longest = max(longest, time.monotonic() - began)
        red += not holds
        click.echo(line)
        if kept:
            with LIST.open("a") as out:
                out.write(line + "\n")
    click.echo(f"{seed - first} seeds, {red} red")
    context.exit(int(red > 0))


@click.command("run")
@click.argument("seed", type=int)
def play(seed: int) -> None:
    """Play one seed."""
    line, holds = _play(seed)
    click.echo(line)
    raise SystemExit(not holds)


@click.command("judge")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def judge_again(file: Path) -> None:
    """Judge a history that was kept."""
    history = History.load(file)
    wrong = judge(history)
    for name, places in wrong.items():
        click.echo(f"{name}: {'holds' if not places else f'{len(places)} wrong'}")
        for one in places[:10]:
            click.echo(f"  event {one.event}: {one.text}")
    raise SystemExit(any(wrong.values()))


def _play(seed: int) -> tuple[str, bool]:
    """A red run leaves its folder: history.json, page.html, the logs and the servers' data."""
    from proof.trial import run

    folder = Path(tempfile.mkdtemp(prefix=f"proof-{seed}-"))
    verdict = run(seed, folder)
    if verdict.holds:
        shutil.rmtree(folder)
        return verdict.line(), True
    (folder / "page.html").write_text(page(verdict.history, verdict.wrong))
    return f"{verdict.line()} | {folder / 'page.html'}", False
