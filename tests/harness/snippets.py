"""The blocks of code in the docs: each with its place, and how it is run.

Above a block that cannot run stands the reason, for authors alone: `<!-- not run: … -->`. In Python, a comment behind a
`print` is the line that it prints. In a console, the lines behind a command are its output. `…` stands for any text,
and alone on a line for any lines.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^( *)```(\w*)(?: title=\"([^\"]*)\")?\s*$")
_NOT_RUN = re.compile(r"^ *<!-- not run: (.+) -->$")
_PRINTS = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)
_MADE_UP = re.compile(r"\blocalhost:6379\b")


@dataclass(frozen=True)
class Snippet:
    path: Path
    line: int
    language: str
    title: str
    text: str
    not_run: str = ""  # why

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"

    def on(self, port: int) -> "Snippet":
        """The same, for a Redis on that port."""
        text = _MADE_UP.sub(f"127.0.0.1:{port}", self.text).replace("--port 6379", f"--port {port}")
        return replace(self, text=text)

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Each command of a console with the lines that it prints."""
        found: list[tuple[str, list[str]]] = []
        for line in self.text.splitlines():
            if command := re.match(r"(?:[\w-]*\$) (.*)", line):
                found.append((command[1].partition("  #")[0].strip(), []))
            elif found:
                found[-1][1].append(line)
        yield from found

    def run(self, namespace: dict[str, Any]) -> None:
        """As Python, in the namespace of its page; it prints as it says."""
        said: list[str] = []
        namespace["print"] = lambda *values: said.append(" ".join(map(str, values)))
        exec(compile("\n" * self.line + self.text, str(self.path), "exec"), namespace)
        if expected := _PRINTS.findall(self.text):
            assert_shown("\n".join(said), expected, str(self))


def snippets(path: Path) -> list[Snippet]:
    found, begun, above = list[Snippet](), None, ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if begun is None and fence:
            begun, lines = (number, fence, _NOT_RUN.match(above)), list[str]()
        elif begun is not None and line.strip() == "```":
            first, opening, reason = begun
            text, why = "\n".join(lines), reason[1] if reason else ""
            found.append(Snippet(path, first, opening[2], opening[3] or "", text, why))
            begun = None
        elif begun is not None:
            lines.append(line.removeprefix(begun[1][1]))
        above = line
    assert begun is None, f"{path}:{begun and begun[0]}: this block does not end"
    return found


def assert_shown(said: str, expected: list[str], where: str) -> None:
    """The lines are these, whatever their spaces."""
    lines = [re.escape(" ".join(line.split())) for line in expected]
    whole = [r"(?:.*\n)*?" if line == "…" else line.replace("…", ".*") + r"\n" for line in lines]
    told = "".join(" ".join(line.split()) + "\n" for line in said.splitlines() if line.strip())
    assert re.fullmatch("".join(whole), told), f"{where}: expected\n{chr(10).join(expected)}\nand it said\n{said}"
