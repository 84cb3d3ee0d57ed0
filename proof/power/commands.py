"""The command that harms append-only files, and what it found last."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from coordinator.local.redis import _programs, _version_of
from proof.power.cases import (
    AGAIN,
    BASE_CUT,
    BASE_FLIP,
    HALF,
    LIST_CUT,
    TORN_REWRITTEN,
    Outcome,
    Runner,
    cases,
)
from proof.power.harms import FLIP

FOUND = Path(__file__).with_name("found.txt")


class Row(NamedTuple):
    """So many harms of a kind that came to the same; `told`: the server's last word about its file, the most frequent;
    `asked`: on how many different states of these the library was to go on; `stuck`: on how many it did not.
    """

    program: str
    kind: str
    came: str
    told: str
    number: int
    asked: int
    stuck: int


def programs() -> dict[str, str]:
    """Each server of this machine by its name, once."""
    return {_version_of(path)[0]: path for path in reversed(list(_programs()))}


@click.command("power")
@click.option("--cuts", "most", default=40, show_default=True, help="Cuts at borders, cuts at bytes, flips: so many.")
@click.option(
    "--all", "whole", is_flag=True, help="Cut at each byte of the last 64 KiB, and flip a bit of each: hours."
)
@click.option("--seed", default=1, show_default=True, help="Of the load, and of what is drawn.")
@click.option("--only", help="A server whose name begins so: Redis, or Valkey.")
@click.option("--keep", is_flag=True, help="Write what came of it into proof/power/found.txt, for the page.")
def power(most: int, whole: bool, seed: int, only: str | None, keep: bool) -> None:
    """Cut and flip what Redis has on its disk, start Redis there, and see what it keeps and says. Status 1 where it
    starts with half a step, or lacks a step that lies before the harm.
    """
    rows = []
    for name, program in programs().items():
        if name.startswith(only or ""):
            found = rows_of(name, list(played(program, most, seed, whole)))
            for row in found:
                click.echo(f"{row.program} | {row.kind} | {row.came} | {row.number}" + (" | RED" if red(row) else ""))
            rows += found
    if keep:
        FOUND.write_text("".join(" | ".join(map(str, row)) + "\n" for row in rows))
    raise SystemExit(any(map(red, rows)))


def played(program: str, most: int, seed: int, whole: bool) -> Iterator[Outcome]:
    with tempfile.TemporaryDirectory() as folder:
        yield from Runner(Path(folder), program).run(cases(Path(folder), program, most, seed, whole))


def red(row: Row) -> bool:
    """Something is wrong that no server is known to do: it starts with half a step, or without one that lies before the
    harm, or nothing mends it; or the library does not go on with what a step had left.
    """
    if row.kind == FLIP:
        return False
    if row.kind in (BASE_CUT, BASE_FLIP):
        return row.came.startswith("starts")
    if row.kind == LIST_CUT and row.came == "starts: less":  # cut between its lines
        return False
    known = row.came.endswith(HALF) and row.kind not in (TORN_REWRITTEN, AGAIN)
    return not known and (bool(row.stuck) or not row.came.endswith((": all before it", ": all")))


def rows_of(program: str, found: list[Outcome]) -> list[Row]:
    """In the order in which the kinds came, the most frequent first."""
    kinds = list(dict.fromkeys(one.kind for one in found))
    rows = []
    for (kind, came), count in Counter((one.kind, one.came) for one in found).items():
        these = [one for one in found if (one.kind, one.came) == (kind, came)]
        ((told, _),) = Counter(one.told for one in these).most_common(1)
        asked = [one.goes for one in these if one.goes is not None]
        rows.append(Row(program, kind, came, told, count, len(asked), len([one for one in asked if one])))
    return sorted(rows, key=lambda row: (kinds.index(row.kind), -row.number))


def found() -> list[Row]:
    """What came of the last run that was kept."""
    rows = [line.split(" | ") for line in FOUND.read_text().splitlines()]
    return [Row(*row[:4], *map(int, row[4:])) for row in rows]  # type: ignore[arg-type]
