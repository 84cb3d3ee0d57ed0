"""Each benchmark runs to its end with the least that it can do, so that none rots."""

import os
import re
import shutil
from pathlib import Path

import pytest

from bench.__main__ import ASIDE, NAMES
from tests.harness.warm import ROOT, python


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_to_its_end_in_its_smallest_form(name: str, tmp_path: Path) -> None:
    if name == "redis_time" and not shutil.which("valgrind"):
        pytest.skip("`make system` installs no valgrind")
    argv, env = ["-m", f"bench.{name}"], {**os.environ, "BENCH_SMALLEST": "1"}
    if name == "pages":  # a process of the tests leaves out what FastAPI loads
        env["PYTHONPATH"] = str(ROOT)
    done = python(argv, ROOT, env, timeout=100)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\d", done.stdout)


def test_each_benchmark_is_one_that_runs_and_has_its_question() -> None:
    scripts = {path.stem for path in (ROOT / "bench").glob("[!_]*.py") if "__main__" in path.read_text()}
    asked = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "bench" / "README.md").read_text(), re.MULTILINE))
    assert scripts == {*NAMES}
    assert asked == {*NAMES, *ASIDE}
