"""The shape of the code, held by the code: floors, ceilings, and who may import what."""

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.harness.each import each
from tests.harness.lua_calls import calls, wrong_calls

ROOT = Path(__file__).parent.parent

# A folder (or a module above it) imports only from rows above its own; "__init__" is the front door of the library.
# Three storeys: what a client and a worker must have, what comes beside it, what operators look and act with.
LIBRARY_FLOORS = """
errors
core.threads core.version core.address core.alert core.cursor core.texts core.finding
timed_out core.settings core.author
core.store
core.verbs
core.jobs core.fleet
core.broker core.locks
core.celery_patches core.grabs core.quotas core.events
core.lanes
core.runner
core.keyed_task core.async_tasks
core.client
core.supervisor core.maintenance
core.worker
core
local
scheduler sorters inbox outbox
ops.search
ops.verbs
ops.diagnosis
ops.extension ops.alerts ops.app_check
ops.readings
coordinator
ops.metrics aio
ops.dashboard
ops.in_flower
__init__ ops.cli testing
ops django
extending __main__
django
"""
SERVICE_FLOORS = """
settings broker documents version whereabouts
app
instants
member_node
database
catalog batches
nodelist
components harvest nodelist.ldap
service
nodelist_refresh schedules pipeline events
sync description
requests
members errors doctor
aio ask
pages web
local
cli
__init__
"""
WITHOUT_CELERY = {
    "core.store", "core.jobs", "core.fleet", "core.locks", "core.grabs", "core.lanes", "core.supervisor",
    "sorters", "ops.diagnosis",
}  # fmt: skip

FUNCTION_LINES, LUA_FUNCTION_LINES = 40, 60
# `Any` stands where nobody here knows the type: results and values of users, JSON of an app, messages of ASGI, replies
# of Redis, which the caller of a step names. Elsewhere a type checker would see nothing.
MOST_ANY = 95

LIBRARY = sorted((ROOT / "coordinator").rglob("*.py"))
SERVICE = sorted([*(ROOT / "tasks").rglob("*.py"), *ROOT.glob("beat_schedule.py")])
LUA = sorted(path for tree in ("coordinator", "tasks") for path in (ROOT / tree).rglob("*.lua"))
REST_FOLDERS = ("tests", "proof", "bench", "examples", "generate")
REST = sorted(path for folder in REST_FOLDERS for path in (ROOT / folder).rglob("*.py"))


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def every(paths: list[Path]) -> Callable[[Callable[[Path], None]], object]:
    return each(lambda: paths, named)


def module_of(path: Path) -> str:
    """`coordinator/ops/dashboard/app.py` is coordinator.ops.dashboard.app, `tasks/__init__.py` is tasks."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path: Path, deferred: bool = True) -> frozenset[str]:
    """Dotted names of all modules that the file imports; `from a import b` gives a.b. `deferred`: also in functions."""
    return frozenset(_imports(path, deferred))


def _nodes(node: ast.AST, deferred: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if deferred or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _nodes(child, deferred)


def _imports(path: Path, deferred: bool) -> Iterator[str]:
    package = module_of(path).split(".") if path.name == "__init__.py" else module_of(path).split(".")[:-1]
    for node in _nodes(ast.parse(path.read_text()), deferred):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and "import_module" in (getattr(node.func, one, "") for one in ("id", "attr")):
            names = (one.value for one in node.args if isinstance(one, ast.Constant))
            yield from (name for name in names if name.split(".")[0] in FLOORS)


def floors(table: str) -> dict[str, int]:
    return {room: number for number, row in enumerate(table.strip().splitlines()) for room in row.split()}


FLOORS = {"coordinator": floors(LIBRARY_FLOORS), "tasks": floors(SERVICE_FLOORS)}
MODULES = {module_of(path): path for path in [*LIBRARY, *SERVICE]}


def room_of(name: str) -> str:
    """The room of a dotted name, as the table names it; what is no module lies at the front door."""
    top, *parts = name.split(".")
    known = [".".join(parts[:length]) for length in (2, 1) if len(parts) >= length]
    return next((room for room in known if room in FLOORS[top]), "__init__")


@every([*LIBRARY, *(path for path in SERVICE if path.name != "beat_schedule.py")])
def test_every_module_has_a_floor(path: Path) -> None:
    whole = module_of(path)
    assert "." not in whole or room_of(whole) != "__init__", f"give {named(path)} a place in its table"


@pytest.mark.parametrize("top", FLOORS)
def test_every_room_in_the_table_is_there(top: str) -> None:
    rooms = {room_of(name) for name in MODULES if name.split(".")[0] == top}
    assert rooms == set(FLOORS[top])


@every([*LIBRARY, *(path for path in SERVICE if path.name != "beat_schedule.py")])
def test_folders_import_only_from_floors_below(path: Path) -> None:
    top, room = module_of(path).split(".")[0], room_of(module_of(path))
    used = {room_of(name) for name in imports(path) if name.split(".")[0] == top} - {room}
    wrong = {other for other in used if FLOORS[top][other] >= FLOORS[top][room]}
    assert not wrong, f"{room} is not above {sorted(wrong)}"


@every(SERVICE)
def test_the_service_enters_the_library_by_its_two_doors(path: Path) -> None:
    """As an app of others can: `coordinator`, and `coordinator.extending`."""
    front = {f"coordinator.{line.split()[-1]}" for line in (ROOT / "coordinator/__init__.pyi").read_text().splitlines()}
    inner = {name for name in imports(path) if name.startswith("coordinator.")} - front
    assert not {name for name in inner if not name.startswith("coordinator.extending.")}


def test_the_beat_schedule_is_a_table_that_imports_nothing() -> None:
    assert not imports(ROOT / "beat_schedule.py")


@pytest.mark.parametrize(
    "name", ["beat_schedule", "tasks.settings", "tasks.nodelist_refresh", "coordinator.core.worker.bootstep"]
)
def test_what_celery_imports_first_can_be_imported_first(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stderr


def import_graph(modules: dict[str, Path], deferred: bool) -> dict[str, set[str]]:
    return {
        module: {
            other
            for name in imports(path, deferred)
            for other in (name, name.rpartition(".")[0])
            if other in modules and other != module
        }
        for module, path in modules.items()
        if path.name != "__init__.py"
    }


def test_modules_have_no_import_cycles() -> None:
    graphlib.TopologicalSorter(import_graph(MODULES, deferred=True)).prepare()


def test_what_stands_beside_the_product_has_no_import_cycles() -> None:
    """At module level: inside functions, an app's tasks and its steps may import each other."""
    graphlib.TopologicalSorter(import_graph({module_of(path): path for path in REST}, deferred=False)).prepare()


@every([path for path in [*LIBRARY, *SERVICE] if path.name == "__init__.py"])
def test_a_folder_hands_on_names_and_nothing_else(path: Path) -> None:
    """All but the front doors, and the scheduler, whose class `celery beat -S` names."""
    if path.parent.name in ("coordinator", "scheduler", "django", "testing"):
        return
    for node in ast.parse(path.read_text()).body:
        said = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        handed = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        assert said or handed or isinstance(node, ast.ImportFrom), ast.unparse(node)


@every(LIBRARY)
def test_the_library_knows_nothing_of_the_service(path: Path) -> None:
    assert not {name.split(".")[0] for name in imports(path)} & {"tasks", "beat_schedule"}


@every([path for path in LIBRARY if room_of(module_of(path)) in WITHOUT_CELERY])
def test_celery_is_for_the_upper_floors(path: Path) -> None:
    assert "celery" not in {name.split(".")[0] for name in imports(path)}


@every([*LIBRARY, *SERVICE])
def test_only_the_store_and_the_embedded_server_talk_to_redis(path: Path) -> None:
    doors = [f"core/store/{name}" for name in ("bundle", "client", "connections", "login", "sentinel", "wire")]
    doors += ["aio/connections", "aio/notices", "aio/requests", "local/redis"]
    allowed = named(path) in {f"coordinator/{door}.py" for door in doors}
    assert allowed or "redis" not in {name.split(".")[0] for name in imports(path)}


@every([*LIBRARY, *SERVICE])
def test_only_one_module_reads_the_records_of_jobs(path: Path) -> None:
    assert named(path) == "coordinator/core/jobs/record.py" or 'key("job"' not in path.read_text()


@every([*LIBRARY, *SERVICE, *REST])
def test_functions_stay_below_their_ceiling(path: Path) -> None:
    nodes = ast.walk(ast.parse(path.read_text()))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = [f.name for f in functions if f.end_lineno and f.end_lineno - f.lineno + 1 > FUNCTION_LINES]
    assert not long, f"longer than {FUNCTION_LINES} lines: {long}"


def test_few_types_are_left_open() -> None:
    found = {named(path): len(re.findall(r"\bAny\b", path.read_text())) for path in [*LIBRARY, *SERVICE]}
    most = sorted(found, key=found.__getitem__, reverse=True)[:10]
    assert sum(found.values()) <= MOST_ANY, [(path, found[path]) for path in most]


@every(LUA)
def test_lua_functions_stay_below_their_ceiling(path: Path) -> None:
    lines = path.read_text().splitlines()
    begun = None
    for number, line in enumerate(lines):
        if re.match(r"(local )?function |step\.define\(", line) and not line.endswith(" end"):
            begun = number
        if begun is not None and line in ("end", "end)"):
            assert number - begun < LUA_FUNCTION_LINES, f"longer than {LUA_FUNCTION_LINES} lines: {lines[begun]}"
            begun = None
    assert begun is None


def test_every_call_of_a_lua_function_fits_it() -> None:
    """Lua drops what is too much, and gives nil for what lacks, in silence."""
    files = {path.stem if path.parent.name != "steps" else f"steps/{path.stem}": path.read_text() for path in LUA}
    assert wrong_calls(files) == []
    assert sum(1 for text in files.values() for _ in calls(text)) > 2000
