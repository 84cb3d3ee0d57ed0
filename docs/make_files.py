"""Write docs/files.md, a sentence for each file of the code: python docs/make_files.py"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "files.md"

HEAD = """\
# Files

`python docs/make_files.py` writes this page from the first sentence of each file, and from the public names in it. The
folders stand in [index.md](index.md#where-things-live), each below those that it imports from.
"""

# They hand on names, or start what stands beside them.
PASSED_OVER = ("__init__.py", "__main__.py")


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """The whole page."""
    folders: dict[Path, list[Path]] = {}
    for path in files():
        folders.setdefault(path.parent, []).append(path)
    parts = [HEAD]
    for folder, found in folders.items():
        parts.append(f"\n## {folder.relative_to(ROOT)}/\n\n| file | holds | names |\n|---|---|---|\n")
        parts += [row(path) for path in found]
    return "".join(parts)


def files() -> Iterator[Path]:
    """Those with code of their own."""
    for part in ("coordinator", "tasks"):
        for path in sorted((ROOT / part).rglob("*"), key=lambda path: (str(path.parent), path.name)):
            if path.suffix in (".py", ".lua") and path.name not in PASSED_OVER:
                yield path


def row(path: Path) -> str:
    cells = (f"`{path.name}`", sentence(path), " ".join(f"`{name}`" for name in names(path)))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def sentence(path: Path) -> str:
    """The first of its docstring, or of the comment with which it begins."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".lua":
        lines = [line.lstrip("- ") for line in re.match(r"(--.*\n)*", text)[0].splitlines()]  # type: ignore[index]
    else:
        lines = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")[0].splitlines()
    return re.split(r"(?<=[\w)`…>\]]\.) ", f"{' '.join(lines)} ", maxsplit=1)[0].strip()


def names(path: Path) -> list[str]:
    """The classes and functions that other files may use."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".lua":
        found = re.findall(r"^function (\w+\.\w+)|^step\.define\('(\w+)'", text, re.MULTILINE)
        return [rule or step for rule, step in found]
    defined = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [one.name for one in ast.parse(text).body if isinstance(one, defined)]
    return [name for name in found if not name.startswith("_")]


if __name__ == "__main__":
    main()
