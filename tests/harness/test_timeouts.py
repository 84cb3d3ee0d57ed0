"""A test that hangs fails within its timeout, wherever it hangs, and the others go on."""

import os
import re
from pathlib import Path

from tests.harness.warm import python

ROOT = Path(__file__).parents[2]
LOADED = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # the fork has our libraries already
HANGING = """
import time, pytest

pytestmark = pytest.mark.timeout(0.5)

def hang():
    time.sleep(600)

@pytest.fixture
def slow_setup():
    hang()

@pytest.fixture
def slow_teardown():
    yield
    hang()

def test_setup(slow_setup): ...
def test_body(slow_teardown): hang()
def test_teardown(slow_teardown): ...

def test_its_report_takes_longer_than_the_timeout():
    __tracebackhide__ = lambda error: time.sleep(0.6)
    raise ValueError

@pytest.mark.timeout(60)
def test_another(): ...
"""


def test_a_test_that_hangs_fails_wherever_it_hangs_and_the_next_one_runs(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)
    ours = ["-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest", "-p", "no:cacheprovider", *LOADED]
    done = python(["-m", "pytest", *ours, "-q", str(tmp_path)], ROOT, dict(os.environ))
    assert "INTERNALERROR" not in done.stdout + done.stderr
    ends = re.findall(r"^(FAILED|ERROR) \S*::(\w+)", done.stdout, re.MULTILINE)
    assert sorted(ends) == [
        ("ERROR", "test_body"),
        ("ERROR", "test_setup"),
        ("ERROR", "test_teardown"),
        ("FAILED", "test_body"),
        ("FAILED", "test_its_report_takes_longer_than_the_timeout"),
    ]
    assert "2 passed" in done.stdout  # the other one, and the body that a teardown follows
