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

`python docs/make_files.py` writes this page from the first sentence of each file, and from the names that it defines:
classes, functions, methods and constants, what others may use before what is its own (with `_`). The folders stand in
[index.md](index.md#where-things-live), each below those that it imports from.
"""

LUA_NAMES = re.compile(
    r"^function (\w+\.\w+)|^step\.define\('(\w+)'|^local (?:function )?([A-Z]{3}\w*|\w+(?=\())", re.MULTILINE
)

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
    """What the file defines: first what other files may use, then the rest, each once."""
    text = path.read_text(encoding="utf-8")
    found = lua_names(text) if path.suffix == ".lua" else python_names(ast.parse(text).body)
    return sorted(dict.fromkeys(found), key=lambda name: name.startswith("_"))


def lua_names(text: str) -> Iterator[str]:
    for rule, step, own in LUA_NAMES.findall(text):
        yield rule or step or f"_{own}"


def python_names(body: list[ast.stmt]) -> Iterator[str]:
    """Classes, functions, methods and constants."""
    for one in body:
        if isinstance(one, ast.ClassDef):
            yield one.name
            yield from (name for name in python_names(one.body) if not name.isupper())
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and not one.name.startswith("__"):
            yield one.name
        elif isinstance(one, ast.Assign | ast.AnnAssign):
            stored = (each for each in ast.walk(one) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
            yield from (each.id for each in stored if each.id.isupper() and len(each.id) > 1)


if __name__ == "__main__":
    main()
