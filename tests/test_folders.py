"""The folders of the tests tell what a test needs, and mirror the folders of the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.harness.each import each

TESTS = Path(__file__).parent
ROOT = TESTS.parent

# Tests below tests/fleet start workers, beats, nodes or members of a replica set; `make test-quick` leaves them out.
STARTS_PROCESSES = (
    "tests.harness.fleet",
    "tests.harness.command.Command",
    "tests.fleet",
    "proof.members",
    "proof.swarm.fleet",
    "proof.trial",
    "proof.world",
    "bench.servers.worker",
)

# What these bring into a test starts a program of a package of the system.
WANTS_A_PACKAGE = (
    "tests.harness.browser", "tests.harness.postgres", "tests.harness.rabbitmq", "tests.harness.slapd", "ldap",
)  # fmt: skip
PACKAGES_OF_FIXTURES = {"chromium", "database", "postgres_server", "rabbitmq_server"}

QUICK = sorted(path for path in TESTS.rglob("*.py") if path.relative_to(TESTS).parts[0] not in ("fleet", "harness"))
ROOMS = sorted(
    path.parent.relative_to(ROOT)
    for top in ("coordinator", "tasks")
    for path in (ROOT / top).rglob("__init__.py")
    # The tests of these are beside those of the other stores of the nodelist, and in tests/fleet/tasks/test_up.py.
    if str(path.parent.relative_to(ROOT)) not in ("tasks/nodelist/ldap", "tasks/local")
)


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@each(lambda: QUICK)
def test_a_quick_test_starts_no_process_of_ours_that_lasts(path: Path) -> None:
    wrong = [name for name in imported(path) if f"{name}.".startswith(tuple(f"{one}." for one in STARTS_PROCESSES))]
    assert not wrong, f"this belongs below tests/fleet: {wrong}"


def heart() -> Iterator[Path]:
    """The tests of `make test-core`."""
    folder, rooms = re.findall(r"^CORE := \$\(addprefix (\S+),(.+)\)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[
        0
    ]
    for room in rooms.split():
        yield from sorted((ROOT / folder / room).rglob("*.py"))


@each(heart)
def test_a_test_of_the_heart_needs_no_server_but_redis(path: Path) -> None:
    """So `make test-core` runs on a fresh clone."""
    assert not [name for name in imported(path) if f"{name}.".startswith(tuple(f"{one}." for one in WANTS_A_PACKAGE))]
    tree = ast.parse(path.read_text())
    assert not PACKAGES_OF_FIXTURES & {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    assert not {"which", "broker"} & {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


@each(lambda: ROOMS)
def test_each_folder_of_the_code_has_its_folder_of_tests(room: Path) -> None:
    assert list((TESTS / room).rglob("test_*.py")), f"no tests in tests/{room}"
