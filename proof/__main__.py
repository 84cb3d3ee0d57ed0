"""The command of the laboratory: `python -m proof --help`."""

from __future__ import annotations

import click

from proof.mutants import model, mutants
from proof.peers import peers
from proof.planted import planted
from proof.planting import fault
from proof.power.commands import power
from proof.seeds import judge_again, play, portion
from proof.spec.check import spec
from proof.steps.commands import hold_again, replay_again

cli = click.Group(
    "proof",
    commands=[play, judge_again, planted, hold_again, replay_again, model, mutants, fault, peers, spec, power],
    invoke_without_command=True,
    callback=portion.callback,
    params=portion.params,
    help=portion.help,
)

if __name__ == "__main__":
    cli(prog_name="python -m proof")
