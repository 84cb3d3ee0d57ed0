"""What a linter says of the Lua that Redis is given: luacheck, a package of the system."""

import shutil
import subprocess
from pathlib import Path

import pytest

from coordinator.store.library import Library, current
from tasks.documents import library as documents
from tests.harness.functions import RULES


@pytest.mark.parametrize("library", [current(), documents.current()], ids=["coordinator", "documents"])
def test_the_linter_finds_nothing(library: Library, tmp_path: Path) -> None:
    linter = shutil.which("luacheck")
    assert linter, "no luacheck on the PATH: make system"
    (tmp_path / "library.lua").write_text(library.text.partition("\n")[2])
    given = ["--std", "lua51", "--read-globals", "redis", "cjson", "--max-line-length", "120", "--no-color"]
    if library is not current():  # it needs few of the rules
        given += ["--ignore", *(f"211/{rule}" for rule in RULES)]
    done = subprocess.run([linter, "library.lua", *given], cwd=tmp_path, capture_output=True, text=True)
    assert not done.returncode, done.stdout
