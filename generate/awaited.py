"""Writes coordinator/aio/declared.pyi: the types of the awaited calls, from the signatures of those that block."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from coordinator.aio import declared
from coordinator.coordinator import Coordinator
from coordinator.ops.verbs.planner import Planner
from coordinator.scheduler.steering import Entries
from coordinator.sorters.sorter import Sorter

STUB = Path("coordinator/aio/declared.pyi")
HEAD = "# Written by `make generated`."
CALLS = "def calls(kind: type) -> Iterator[tuple[str, Callable[..., Any], bool]]: ..."
CLASSES = {"Calls": Coordinator, "EntryCalls": Entries, "SorterCalls": Sorter, "PlannerCalls": Planner}


def stub() -> str:
    """The text of the stub."""
    imports: set[str] = {
        "from collections.abc import Callable, Iterator", "from coordinator.aio.verbs import Awaiting",
        "from typing import Any",
    }  # fmt: skip
    classes = []
    for name, kind in CLASSES.items():
        lines = [f"class {name}(Awaiting):"]
        for _, function, _ in declared.calls(kind):
            signature = _signature(inspect.unwrap(function))
            imports.update(_imports(inspect.unwrap(function), signature))
            lines.append(f"    async {signature}: ...")
        classes.append("\n".join(lines))
    return "\n".join([HEAD, *sorted(imports), "", CALLS, "", *classes, ""])


def _signature(function: object) -> str:
    """`def name(…) -> …`, as it is written, in one line."""
    source = textwrap.dedent(inspect.getsource(function))  # type: ignore[arg-type]
    node = next(one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.FunctionDef))
    return f"def {node.name}({ast.unparse(node.args)}) -> {ast.unparse(node.returns) if node.returns else None}"


def _imports(function: object, signature: str) -> Iterator[str]:
    """The imports of the names in a signature, as its module has them, those for type checkers included."""
    module = sys.modules[function.__module__]
    wanted = set(re.findall(r"\w+", signature))
    own = {node.name for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.ClassDef)}
    yield from (f"from {module.__name__} import {name}" for name in sorted(wanted & own))
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            for alias in node.names:
                if (alias.asname or alias.name) in wanted:
                    renamed = f" as {alias.asname}" if alias.asname else ""
                    yield f"from {node.module} import {alias.name}{renamed}"
