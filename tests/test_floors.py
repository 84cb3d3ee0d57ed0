"""The shape of the code, held by the code: floors, ceilings, and who may import what."""

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# A module imports only from floors below its own. "__init__" is the front door of the library.
FLOORS = (
    {"durable", "envelopes", "errors", "leash", "processes", "tables", "version"},
    {"copies", "settings", "embedded", "supervisor", "quartz"},
    {"store"},
    {"jobs", "checks", "nodes", "entries", "line"},
    {"arrivals"},
    {"orders"},
    {"drafts", "work"},
    {"lanes", "overview", "sorter", "replicas", "routing"},
    {"causes", "current", "replica"},
    {"locks", "memory", "documents"},
    {"memory_sorters"},
    {"doorbells", "ingress", "known", "notices"},
    {"subresults", "hands"},
    {"attempt"},
    {"events", "parked"},
    {"runner", "warden", "inbox", "scheduler", "worker"},
    {"extension"},
    {"session"},
    {"acting"},
    {"__init__", "companion", "testing", "dashboard", "cli"},
)
CELERY_FROM = next(number for number, floor in enumerate(FLOORS) if "doorbells" in floor)

FILE_LINES, FUNCTION_LINES, SCRIPT_LINES = 300, 40, 60

LIBRARY = sorted((ROOT / "coordinator").rglob("*.py"))
SERVICE = sorted([*(ROOT / "tasks").rglob("*.py"), *ROOT.glob("beat_schedule.py")])
SCRIPTS = sorted((ROOT / "coordinator" / "lua").glob("*.lua"))
REST = sorted(path for folder in ("tests", "bench", "examples") for path in (ROOT / folder).rglob("*.py"))


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def every(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=named)


def module_of(path: Path) -> str:
    """`coordinator/dashboard/pages.py` is coordinator.dashboard.pages, `tasks/__init__.py` is tasks."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """Dotted names of all modules imported anywhere in the file; `from a import b` gives a.b."""
    package = module_of(path).split(".") if path.name == "__init__.py" else module_of(path).split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def part_of(module: str) -> str:
    """The name in the table for a dotted name under `coordinator`; what is no module is in the front door."""
    name = [*module.split("."), ""][1]
    folder = ROOT / "coordinator" / name
    return name if name and (folder.is_dir() or folder.with_suffix(".py").exists()) else "__init__"


def floor_of(part: str) -> int:
    return next(number for number, floor in enumerate(FLOORS) if part in floor)


@every(LIBRARY)
def test_every_module_of_the_library_has_a_floor(path: Path) -> None:
    assert any(part_of(module_of(path)) in floor for floor in FLOORS), f"give {named(path)} a place in FLOORS"


@every(LIBRARY)
def test_modules_import_only_from_floors_below(path: Path) -> None:
    part = part_of(module_of(path))
    used = {part_of(name) for name in imports(path) if name.split(".")[0] == "coordinator"} - {part}
    wrong = {other for other in used if floor_of(other) >= floor_of(part)}
    assert not wrong, f"{part} is not above {sorted(wrong)}"


@every(LIBRARY)
def test_the_library_knows_nothing_of_the_service(path: Path) -> None:
    assert not {name.split(".")[0] for name in imports(path)} & {"tasks", "beat_schedule"}


@every(LIBRARY)
def test_celery_is_for_the_upper_floors(path: Path) -> None:
    uses_celery = "celery" in {name.split(".")[0] for name in imports(path)}
    assert not uses_celery or floor_of(part_of(module_of(path))) >= CELERY_FROM


@every([*LIBRARY, *SERVICE])
def test_only_the_store_and_the_embedded_server_talk_to_redis(path: Path) -> None:
    allowed = named(path) in {"coordinator/store.py", "coordinator/embedded.py"}
    assert allowed or "redis" not in {name.split(".")[0] for name in imports(path)}


def test_the_service_has_no_import_cycles() -> None:
    modules = {module_of(path): path for path in SERVICE}
    graph = {
        module: {other for name in imports(path) for other in (name, name.rpartition(".")[0]) if other in modules}
        - {module, "tasks"}
        for module, path in modules.items()
    }
    graphlib.TopologicalSorter(graph).prepare()


@every([path for path in [*LIBRARY, *SERVICE] if path.name != "cli.py"])
def test_imports_stand_at_the_top(path: Path) -> None:
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    inside = [node.lineno for f in functions for node in ast.walk(f) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not inside, f"imports inside functions, lines {inside}"


@every([*LIBRARY, *SERVICE, *REST])
def test_files_and_functions_stay_below_their_ceilings(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= FILE_LINES
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = [f.name for f in functions if f.end_lineno and f.end_lineno - f.lineno + 1 > FUNCTION_LINES]
    assert not long, f"longer than {FUNCTION_LINES} lines: {long}"


@every(SCRIPTS)
def test_scripts_stay_below_their_ceiling(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= SCRIPT_LINES
