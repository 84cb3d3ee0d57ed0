"""Commands that run many seeds, or one, and the list of their verdicts."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import click

from proof.checkers import NOTHING, judge, judgements
from proof.history import History
from proof.page import page

LIST, RED = Path(__file__).with_name("seeds.txt"), Path(__file__).with_name("red")


@click.command("portion")
@click.option("--minutes", default=30.0, show_default=True, help="As many seeds as fit.")
@click.option("--first", type=int, help=f"The first seed; without it the one behind the last of {LIST.name}.")
@click.option("--seeds", default=0, help="So many seeds, whatever it takes.")
@click.pass_context
def portion(context: click.Context, minutes: float, first: int | None, seeds: int) -> None:
    """Play seeds: a fleet under a nemesis, and the judges of its history. Status 1 where one of them is red.

    Each line: seed, commit, what the world had, what the nemesis did and how often, jobs, runs, late writes that were
    refused, the verdict, and the history's checksum. It goes into proof/seeds.txt unless you name the first seed.
    """
    if context.invoked_subcommand:
        return
    begun = listed()[-1].seed + 1 if first is None and listed() else first or 1
    end, red, longest = time.monotonic() + 60 * minutes, 0, 0.0
    for seed in itertools.count(begun):
        if seed - begun >= seeds if seeds else time.monotonic() + longest > end and seed > begun:
            break
        since = time.monotonic()
        red += not _play(seed, first is None)
        longest = max(longest, time.monotonic() - since)
    click.echo(f"{seed - begun} seeds, {red} red")
    context.exit(int(red > 0))


class Listed(NamedTuple):
    """A line of the list. `counts`: faults by way, jobs, runs, refused writes. `why`: explains a red seed."""

    seed: int
    commit: str
    world: frozenset[str]
    counts: dict[str, int]
    verdict: str
    checksum: str
    why: str


def listed() -> list[Listed]:
    seeds = []
    for line in LIST.read_text().splitlines() if LIST.exists() else ():
        fields, _, why = line.partition(" # ")
        seed, commit, world, numbers, _, verdict, checksum = fields.split(" | ")
        words = numbers.split()
        counts = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        seeds.append(Listed(int(seed), commit, frozenset(world.split("+")), counts, verdict, checksum, why))
    return seeds


@click.command("run")
@click.argument("seed", type=int)
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="A folder for the history.")
def play(seed: int, keep: Path | None) -> None:
    """Play one seed."""
    raise SystemExit(not _play(seed, False, keep))


@click.command("judge")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def judge_again(file: Path) -> None:
    """Judge a saved history."""
    history = History.load(file)
    wrong, all_ = judge(history, must_apply=True), judgements(history)
    for name, places in wrong.items():
        click.echo(f"{name}: {f'{len(places)} wrong' if places else NOTHING}, of {all_[name].checked}")
        for one in places[:10]:
            click.echo(f"  event {one.event}: {one.text}")
    raise SystemExit(any(wrong.values()))


def _play(seed: int, is_listed: bool, keep: Path | None = None) -> bool:
    """Run a seed; True if it holds. A red run keeps its folder: history.json, page.html, logs and the servers' data."""
    from proof.trial import STEPS, run

    folder = Path(tempfile.mkdtemp(prefix=f"proof-{seed}-"))
    try:
        verdict = run(seed, folder)
    except AssertionError as error:  # of the harness: a server did not start in time, say
        click.echo(f"{seed} | again, since the laboratory itself failed: {str(error)[:200]}", err=True)
        shutil.rmtree(folder)
        verdict = run(seed, folder)
    line = verdict.line()
    for at in filter(None, (keep, RED if is_listed and not verdict.holds else None)):
        at.mkdir(parents=True, exist_ok=True)
        verdict.history.save(at / f"{seed}.json.xz")
        shutil.copy(folder / STEPS, at / f"{seed}.{STEPS}")
    if is_listed:
        with LIST.open("a") as out:
            out.write(f"{line}\n")
    if verdict.holds:
        shutil.rmtree(folder)
    else:
        (folder / "page.html").write_text(page(verdict.history, verdict.wrong, folder / STEPS))
        line += f" | {folder / 'page.html'}"
    click.echo(line)
    return verdict.holds
