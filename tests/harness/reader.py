"""The reader's test: `python -m tests.harness.reader SEED` draws twenty lines of the code, for somebody who names the
file of each and has read docs/files.md only. `--answers` names the files.

A line is a whole statement, or the head of a compound one; in Lua a line of the file. It counts where it names two
things of its own, each of four letters or more that is no keyword and no builtin, and where no other file has it.
`return value` says nothing of its place, so nobody could name its file. Imports, docstrings and comments do not count.
"""

import ast
import builtins
import keyword
import random
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LUA = {"elseif", "function", "ipairs", "local", "pairs", "redis", "repeat", "then", "tonumber", "tostring", "until"}
NAMELESS = {*keyword.kwlist, *dir(builtins), *LUA, "call", "self"}
LONGEST = 200


def statements(text: str) -> Iterator[str]:
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        told = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not isinstance(node, ast.stmt) or told or isinstance(node, ast.Import | ast.ImportFrom):
            continue
        body = getattr(node, "body", None)
        end = max(body[0].lineno - 1, node.lineno) if body else node.end_lineno
        yield " ".join(line.strip() for line in lines[node.lineno - 1 : end])[:LONGEST]


def rows(text: str) -> Iterator[str]:
    for line in map(str.strip, text.splitlines()):
        if not line.startswith("--"):
            yield line


def names_two_things(line: str) -> bool:
    found = {name for name in re.findall(r"[A-Za-z_]\w*", line) if len(name.strip("_")) >= 4}
    return len(found - NAMELESS) >= 2


def drawn(seed: str, number: int = 20) -> list[tuple[str, str]]:
    """Lines and their files."""
    where: dict[str, set[str]] = {}
    for path in runpy.run_path(str(ROOT / "docs" / "make_files.py"))["files"]():
        text = path.read_text(encoding="utf-8")
        for line in rows(text) if path.suffix == ".lua" else statements(text):
            if names_two_things(line):
                where.setdefault(line, set()).add(str(path.relative_to(ROOT)))
    found = sorted((line, *files) for line, files in where.items() if len(files) == 1)
    return random.Random(seed).sample(found, number)


if __name__ == "__main__":
    for place, (line, file) in enumerate(drawn(sys.argv[1]), 1):
        print(place, file if "--answers" in sys.argv else line)
