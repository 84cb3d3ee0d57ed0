"""What a linter says of the Lua that Redis is given: luacheck, a package of the system. And how we read its calls."""

import shutil
import subprocess
from pathlib import Path

import pytest

from coordinator.core.store.library import Library, current
from tasks.documents import library as documents
from tests.harness.functions import RULES
from tests.harness.lua_calls import wrong_calls


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


CANCEL = """-- Cancels. unbegun?: only a job that has not begun.
function cancel.job(c, id, act, unbegun) return c, id, act, unbegun end

return cancel
"""


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("cancel.job(c, id, act)", []),
        ("cancel.job(c, id, act, true)", []),
        ("cancel.job(c, id, {why = 'a, b', by = f(1, 2)}) -- as (here", []),
        ("cancel.job(c, unpack(args))", []),
        ("cancel.job(c, id)", ["cancel.job takes 3 to 4 arguments, and is called with 2"]),
        (
            "cancel.job(c, id, 'revoked', 'celery', true)",  # as submit.lua did once, and it passed in silence
            ["cancel.job takes 3 to 4 arguments, and is called with 5"],
        ),
        ("cancel.all(c, id, act)", ["there is no cancel.all"]),
        ("local_one(1)", ["local_one takes 2 arguments, and is called with 1"]),
        ("local_one(1, function(a, b) return a, b end)", []),
        ("any(1, 2, 3)", []),
        ("any()", ["any takes 1 to any number of arguments, and is called with 0"]),
        ("'cancel.job(c)'", []),
    ],
)
def test_a_call_that_does_not_fit_its_function_is_found(call: str, said: list[str]) -> None:
    heads = "local function local_one(a, b) return a, b end\nlocal function any(c, ...) return c, ... end\n"
    found = wrong_calls({"cancel": CANCEL, "submit": f"{heads}return {call}\n"})
    assert found == [f"submit: {one}" for one in said]
