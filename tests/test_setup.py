"""What a fresh clone offers before anything is installed."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
TARGETS = ("run", "test", "check", "bench", "rough", "system", "lock", "clean")


def make(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *args], cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_make_alone_prints_its_targets() -> None:
    done = make()
    assert done.returncode == 0
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("  make ")] == ["help", *TARGETS]


def test_a_python_that_will_not_do_is_told_with_a_way_out(tmp_path: Path) -> None:
    without_venv = tmp_path / "python"
    without_venv.write_text(f"#!/bin/sh\nexec {sys.executable} -S -c 'import no_venv_here' \n")
    without_venv.chmod(0o755)
    for python, told in ((str(without_venv), "lacks the venv module"), ("", "with the venv module was found")):
        done = make("run", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}")
        assert done.returncode != 0
        assert told in done.stderr
        assert "apt-get install python3-venv" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_versions_are_pinned_with_hashes_and_no_address_is_named() -> None:
    text = (ROOT / "requirements.txt").read_text()
    assert "://" not in text
    assert not re.search(r"^\s*-", text.replace("--hash", ""), re.MULTILINE)
    pinned = re.split(r"\n(?=\S)", text.strip())
    assert len(pinned) > 30
    for one in pinned:
        assert re.match(r"[\w.\[\]-]+==\S+", one), one
        assert "--hash=sha256:" in one, one


def test_the_readme_is_short_and_integration_runs_the_two_commands() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
    commands = (ROOT / ".ci" / "run").read_text().splitlines()
    assert {"make check", "make test"} <= set(commands)
