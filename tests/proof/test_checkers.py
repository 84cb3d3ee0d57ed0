"""Judges of histories: each says no to what is wrong, and nobody says no to what is right."""

from pathlib import Path

from proof.checkers import CHECKERS
from proof.history import History
from proof.planted import RIGHT, WRONG, shown
from tests.harness.each import each


def test_each_checker_has_wrong_histories() -> None:
    assert [*WRONG] == [checker.__name__ for checker in CHECKERS]


@each(shown, lambda one: one[0])
def test_the_judges_say_no_where_they_must_and_nowhere_else(planted: tuple[str, bool]) -> None:
    assert planted[1]


def test_a_history_is_kept_and_read_as_it_was(tmp_path: Path) -> None:
    history = RIGHT["ticks"]
    history.save(tmp_path / "history.json")
    read = History.load(tmp_path / "history.json")
    assert (read.events, read.about, read.checksum) == (history.events, history.about, history.checksum)
