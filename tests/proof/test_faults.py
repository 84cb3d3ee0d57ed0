"""The track record: each fault has its guard and its test, and the pages say what runs have shown."""

import re

import pytest

from proof.faults import FAULTS, IMAGINED, Fault
from proof.mutants import SURVIVES, cases, rows
from proof.planting import ROOT, without_its_guard
from proof.sceptic import DOCS
from tests.harness.each import each

READING = "tests/proof/test_checkers.py::test_a_history_is_kept_and_read_as_it_was"


@each(lambda: [*FAULTS, *IMAGINED], lambda fault: fault.name)
def test_each_fault_has_its_place_and_its_test(fault: Fault) -> None:
    text = (ROOT / fault.place).read_text()
    assert all(text.count(old) == 1 for old, _ in fault.parts())
    file, _, name = fault.test.partition("::")
    assert re.fullmatch(r"seed \d+", file) or f"def {name.partition('[')[0]}(" in (ROOT / file).read_text()


def test_no_two_faults_have_one_name_and_each_commit_is_shown_or_left_out() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 36
    left_out = set(re.findall(r"^\* (\w{7}): ", (DOCS / "proof.md").read_text(), re.MULTILINE))
    assert left_out
    assert not {fault.commit for fault in FAULTS} & left_out


@pytest.mark.parametrize(
    ("new", "seen"),
    [("def read(", True), ("def load(", False), ("def load((", False)],
    ids=["a guard is gone", "nothing is gone", "nothing can be read"],
)
def test_a_fault_is_seen_where_its_test_fails_for_it_alone(new: str, seen: bool) -> None:
    fault = Fault("unread", "", "proof/history.py", "def load(", new, READING, "", "")
    assert without_its_guard(fault).failed is seen


def test_each_mutant_and_fault_has_a_row_of_the_run_that_killed_it_and_each_row_is_of_one() -> None:
    assert {row.about for row in rows()} == {case.about for case in cases()}, "run python -m proof mutants --new"
    assert not [row for row in rows() if SURVIVES in row.killed or not row.killed.strip(" |")]
