"""The commands for a recording of steps."""

from __future__ import annotations

import tempfile
import time
from lzma import LZMAError
from pathlib import Path

import click
import redis

from proof.steps.conformance import PLAYED, hold
from proof.steps.recording import Recording
from proof.steps.replay import path_to, replay
from tests.harness.redis import RedisServer

MOST = 20  # sentences that are shown
FILE = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.command("hold")
@FILE
def hold_again(file: Path) -> None:
    """Hold recorded steps against the model: each answer, and all keys whenever the laboratory looked."""
    recording, wrong = _recording(file), False
    for prefix in filter(PLAYED.__contains__, recording.prefixes()):
        held = hold(recording, prefix)
        click.echo(f"{prefix} {held.text()}")
        _show(held.wrong)
        wrong |= bool(held.wrong)
    raise SystemExit(wrong)


@click.command("replay")
@FILE
@click.option("--until", default="", help="The state behind the last step; else where the model objects, or the end.")
def replay_again(file: Path, until: str) -> None:
    """Do recorded steps again, at a Redis of their own: the same answers, and the same keys.

    Status 1 where an answer or a key is another than it was: the steps are not what they were, or something else
    than a step has changed what Redis kept.
    """
    recording, differs = _recording(file), False
    if until and not any(until == step.after for steps in recording.logs.values() for step in steps):
        raise click.ClickException(f"no recorded step made the state {until!r}: `proof hold {file}` names some")
    for prefix in filter(PLAYED.__contains__, recording.prefixes()):
        held = hold(recording, prefix)
        _show(held.wrong)
        way = path_to(recording, prefix, state := until or held.at or recording.last(prefix))
        if not way:  # that state is another installation's
            continue
        with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder)) as server:
            begun = time.monotonic()
            found = list(replay(recording, prefix, way, redis.Redis(port=server.port)))
            took = time.monotonic() - begun
        click.echo(f"{prefix} {len(way)} steps, until {state}, in {took:.1f} s: {len(found) or 'nothing'} differs")
        _show(found)
        differs |= bool(found)
    raise SystemExit(differs)


def _recording(file: Path) -> Recording:
    try:
        return Recording.load(file)
    except (LZMAError, ValueError, LookupError, TypeError, EOFError) as error:
        raise click.ClickException(f"{file} is no recording of steps, as a seed leaves it: {error}") from error


def _show(sentences: list[str]) -> None:
    for text in sentences[:MOST]:
        click.echo(f"  {text}")
    if sentences[MOST:]:
        click.echo(f"  and {len(sentences) - MOST} more")
