"""The command, on each server of this machine, with one harm of each kind."""

import pytest
from click.testing import CliRunner

from proof.power.cases import AGAIN, BASE_FLIP, HALF, KINDS, LIST_CUT, TORN_REWRITTEN
from proof.power.commands import Row, found, power, red
from proof.power.harms import CUT, FLIP, ZEROS
from tests.proof.power.conftest import PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_harm_of_each_kind_is_played_and_nothing_is_red(name: str) -> None:
    done = CliRunner().invoke(power, ["--cuts", "1", "--only", name])
    assert done.exit_code == 0, done.output
    kinds = {line.split(" | ")[1] for line in done.output.splitlines()}
    assert kinds == set(KINDS)


@pytest.mark.parametrize(
    ("kind", "came", "stuck", "is_red"),
    [
        (CUT, "starts: all before it", 0, False),
        (CUT, "starts: all before it", 1, True),
        (CUT, f"starts: all before it{HALF}", 1, False),
        (TORN_REWRITTEN, f"starts: all before it{HALF}", 0, True),
        (AGAIN, f"starts: all{HALF}", 0, True),
        (CUT, "starts: a state that no step left", 0, True),
        (CUT, "starts: less", 0, True),
        (ZEROS, "refused, and not mended", 0, True),
        (FLIP, "starts: a state that no step left", 1, False),
        (BASE_FLIP, "refused, and not mended", 0, False),
        (LIST_CUT, "starts: less", 0, False),
        (LIST_CUT, "refused, and not mended", 0, True),
        (BASE_FLIP, "starts: a state that no step left", 0, True),
    ],
)
def test_what_nothing_tells_is_red(kind: str, came: str, stuck: int, is_red: bool) -> None:
    assert red(Row("Redis 7.0", kind, came, "", 1, 1, stuck)) == is_red


def test_what_was_found_last_has_nothing_red() -> None:
    assert {row.kind for row in found()} == set(KINDS)
    assert not [row for row in found() if red(row)]
