"""The statements of docs, docstrings and comments, each with its place.

`python -m tests.harness.prose coordinator tasks` lists those that begin with a word that leaves the actor unnamed.
"""

import ast
import io
import os
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

Lines = list[tuple[int, str]]

_UNNAMED = re.compile(r"(who|what|whoever|whatever|whose|of)\b", re.IGNORECASE)
_MARKUP = "*_\"'([>“…–- \t"
_END = re.compile(r"(?<!e\.g)(?<!i\.e)[.!?][\"')`*_\]]*\s+")
_BULLET = re.compile(r"\s*([-*+]|\d+\.)\s+")
_COLUMNS = re.compile(r"\s+\S+( \S+)?\s{2,}\S")
_RULE = re.compile(r"^\|?[\s:|-]+\|?$")


@dataclass(frozen=True)
class Block:
    """A paragraph, a list item or a table cell."""

    kind: str
    lines: Lines

    @property
    def text(self) -> str:
        return " ".join(text.strip() for _, text in self.lines)

    @property
    def line(self) -> int:
        return self.lines[0][0]

    def statements(self) -> Iterator[tuple[int, str]]:
        """Each sentence with the line on which it begins."""
        starts, whole = [], ""
        for number, text in self.lines:
            starts.append((len(whole), number))
            whole += text.strip() + " "
        begin = 0
        for end in [*(found.end() for found in _END.finditer(whole)), len(whole)]:
            if sentence := whole[begin:end].strip():
                yield max(number for at, number in starts if at <= begin), sentence
            begin = end


def unnamed(path: Path) -> list[str]:
    """`file:line: statement` of each that begins with who, what, whoever, whatever, whose or of."""
    return [
        f"{os.path.relpath(path, ROOT)}:{line}: {sentence[:80]}"
        for block in blocks(path)
        for line, sentence in block.statements()
        if _UNNAMED.match(sentence.lstrip(_MARKUP)) and not sentence.rstrip(_MARKUP + "*`)").endswith("?")
    ]


def blocks(path: Path) -> Iterator[Block]:
    text = path.read_text(encoding="utf-8")
    readers = {".md": markdown, ".py": python, ".lua": lua}
    return readers[path.suffix](text)


def markdown(text: str) -> Iterator[Block]:
    """Paragraphs, list items and table cells. Code, headings and the heads of tables are left out."""
    fenced, held = False, Lines()
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        cell = line.startswith("|")
        head = cell and number < len(lines) and bool(_RULE.match(lines[number]))
        if fenced or cell or not line.strip() or _BULLET.match(line) or line.startswith(("#", "```")):
            yield from _paragraph(held)
            held = []
        if fenced or not line.strip() or head or line.startswith("#") or _RULE.match(line) or "```" in line:
            continue
        if cell:
            for part in re.split(r"(?<!\\)\|", line.strip().strip("|")):
                if part.strip():
                    yield Block("cell", [(number, part)])
            continue
        held.append((number, _BULLET.sub("", line, count=1)))
    yield from _paragraph(held)


def python(text: str) -> Iterator[Block]:
    """Docstrings, those of attributes too, and comments."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from _paragraphs(list(enumerate(node.value.value.split("\n"), node.lineno)))
    comments = [
        (token.start, token.string.lstrip("#!").strip(), token.line.lstrip().startswith("#"))
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    held, last = Lines(), (0, 0)
    for (row, column), said, alone in comments:
        if not alone or (row - 1, column) != last:
            yield from _paragraphs(held)
            held = []
        held.append((row, said))
        last = (row, column) if alone else (0, 0)
    yield from _paragraphs(held)


def lua(text: str) -> Iterator[Block]:
    held, last = Lines(), 0
    for number, line in enumerate(text.split("\n"), 1):
        alone = line.lstrip().startswith("--")
        found = re.search(r"(?:^|\s)--+ ?(.*)$", line)
        if not found:
            continue
        if not alone or number - 1 != last:
            yield from _paragraphs(held)
            held = []
        held.append((number, found[1]))
        last = number if alone else 0
    yield from _paragraphs(held)


def _paragraphs(lines: Lines) -> Iterator[Block]:
    """Parted by blank lines, bullets, and lines in columns, of which each column is one."""
    held = Lines()
    for number, text in lines:
        columns = bool(_COLUMNS.match(text))
        if not text.strip() or _BULLET.match(text) or columns:
            yield from _paragraph(held)
            held = []
        if columns:
            yield from (Block("cell", [(number, part)]) for part in re.split(r"\s{2,}", text.strip()))
        elif text.strip():
            held.append((number, _BULLET.sub("", text, count=1)))
    yield from _paragraph(held)


def _paragraph(held: Lines) -> Iterator[Block]:
    if held:
        yield Block("paragraph", held)


def sources(*trees: str) -> list[Path]:
    return sorted(path for tree in trees for kind in ("*.py", "*.lua") for path in (ROOT / tree).rglob(kind))


if __name__ == "__main__":
    for source in sources(*sys.argv[1:]):
        print(*unnamed(source), sep="\n", end="\n" if unnamed(source) else "")
