"""Judges of histories: each says no to what is wrong, and nobody says no to what is right."""

from pathlib import Path

import pytest

from proof.checkers import CHECKERS, judge
from proof.history import History
from proof.planted import RIGHT, WRONG

PLANTED = [(checker, name) for checker, histories in WRONG.items() for name in histories]


def test_each_checker_has_wrong_histories() -> None:
    assert [*WRONG] == [checker.__name__ for checker in CHECKERS]


@pytest.mark.parametrize(("checker", "name"), PLANTED, ids=[name for _, name in PLANTED])
def test_a_checker_says_no_to(checker: str, name: str) -> None:
    assert judge(WRONG[checker][name])[checker]


@pytest.mark.parametrize("name", RIGHT)
def test_no_checker_says_no_to(name: str) -> None:
    assert not any(judge(RIGHT[name]).values())


def test_a_history_is_kept_and_read_as_it_was(tmp_path: Path) -> None:
    history = RIGHT["ticks"]
    history.save(tmp_path / "history.json")
    read = History.load(tmp_path / "history.json")
    assert (read.events, read.about, read.checksum) == (history.events, history.about, history.checksum)
