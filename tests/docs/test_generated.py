"""What is made from the code is as the code says, and no script lies among the pages."""

import shutil
from pathlib import Path

from tests.harness.command import Done, environment
from tests.harness.snippets import ROOT
from tests.harness.warm import python


def generate(folder: Path, *options: str) -> Done:
    return python(["-m", "generate", *options], ROOT, environment(TASKS_DATA_DIR=str(folder)))


def test_make_generated_changes_nothing(tmp_path: Path) -> None:
    done = generate(tmp_path, "--check")
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


def test_make_generated_writes_what_is_stale_or_gone_and_a_check_only_names_it(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    shutil.copytree(ROOT / "docs", docs)
    (docs / "settings.md").write_text("stale")
    (docs / "fleet.svg").unlink()
    options = ("--docs", str(docs))
    check = generate(tmp_path, *options, "--check")
    assert check.returncode == 1
    assert {"docs/settings.md", "docs/fleet.svg"} <= {line.split()[0] for line in check.stdout.splitlines()}
    assert not (docs / "fleet.svg").exists()
    assert generate(tmp_path, *options).returncode == 0
    for name in ("settings.md", "fleet.svg"):
        assert (docs / name).read_text() == (ROOT / "docs" / name).read_text()
    assert generate(tmp_path, *options, "--check").returncode == 0


def test_no_script_lies_among_the_pages() -> None:
    assert sorted((ROOT / "docs").rglob("*.py")) == []
