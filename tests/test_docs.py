"""The docs say what there is: keys, fields, states, calls, settings, folders."""

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

import coordinator
from coordinator import Coordinator, Job
from coordinator.core.jobs.options import SubmitOptions
from coordinator.core.jobs.record import TERMINAL
from coordinator.core.settings import Settings
from generate.repository_pages import BESIDE
from tasks.settings import Settings as ServiceSettings
from tests.harness.each import each

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PATCHES = ROOT / "coordinator" / "core" / "celery_patches"
PUBLIC = set(coordinator._HOME_OF)
PROSE = [*DOCS, *(ROOT / name for name in BESIDE if name.endswith(".md")), PATCHES / "README.md"]
LUA = "\n".join(path.read_text() for tree in ("coordinator", "tasks") for path in sorted((ROOT / tree).rglob("*.lua")))
PYTHON = "\n".join(
    path.read_text() for tree in ("coordinator", "tasks") for path in sorted((ROOT / tree).rglob("*.py"))
)

KINDS = sorted({*re.findall(r"\.\. '([a-z-]{2,}:?)'", LUA), *re.findall(r"\bkey\(\"([a-z-]+)\"", PYTHON)})
FIELDS = sorted(set(re.findall(r"'(\w+)'", " ".join(re.findall(r"\bfill\w*\((.*?)\)", LUA, re.DOTALL)))))
STATES = sorted(
    {*re.findall(r"HSET'.*'state', '(\w+)'", LUA), *re.findall(r"\bstates\.enter\([^)']*'(\w+)'", LUA), *TERMINAL}
)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text()


def section(name: str, heading: str) -> str:
    return page(name).split(f"\n## {heading}\n")[1].split("\n## ")[0]


@each(lambda: PROSE, named)
def test_links_lead_somewhere(path: Path) -> None:
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        file, _, anchor = target.partition("#")
        there = path.parent / file if file else path
        if "://" not in target and (not there.exists() or (anchor and anchor not in anchors(there))):
            dead.append(target)
    assert not dead


def anchors(path: Path) -> set[str]:
    """As GitHub makes them of headings, and those that a page names itself."""
    own = set(re.findall(r'<a id="([^"]+)">', path.read_text()))
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL), re.MULTILINE)
    return own | {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@each(lambda: DOCS, named)
def test_the_index_leads_to_every_page(path: Path) -> None:
    assert path.name == "index.md" or f"]({path.relative_to(ROOT / 'docs')})" in page("index")


@each(lambda: DOCS, named)
def test_the_site_leads_to_every_page(path: Path) -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    assert re.search(rf"[-:] {re.escape(str(path.relative_to(ROOT / 'docs')))}$", nav, re.MULTILINE)


def test_every_folder_is_named() -> None:
    where = section("index", "Where things live")
    trees = [ROOT / "coordinator", ROOT / "tasks"]
    folders = [path.parent for tree in trees for path in tree.rglob("*.py") if path.parent not in trees]
    paths = ["/".join(folder.relative_to(ROOT).parts[1:]) for folder in folders]
    assert not {path for path in paths if f"`{re.sub('^(core|ops)/', '', path)}/`" not in where}


def test_every_path_that_the_docs_name_is_there() -> None:
    found = re.findall(
        r"`((?:coordinator|tasks|tests|docs|bench|examples|deploy)/[\w./-]*)`", "".join(map(read, PROSE))
    )
    assert [path for path in found if not (ROOT / path).exists()] == []


def test_every_patch_of_celery_is_listed_with_its_test() -> None:
    rows = re.findall(r"^\| `(\w+\.py)` \|.*`tests/[\w/.]+` \|$", (PATCHES / "README.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(path.name for path in PATCHES.glob("*.py") if path.name != "__init__.py")


def read(path: Path) -> str:
    return path.read_text()


def cells(name: str, heading: str) -> str:
    return " ".join(line.split("|")[1] for line in section(name, heading).splitlines() if line.startswith("| `"))


@each(lambda: KINDS)
def test_every_key_that_the_code_names_is_in_the_table(kind: str) -> None:
    assert re.search(rf"`{kind.rstrip(':')}[:`]" if kind[-1] != ":" else f"`{kind}", cells("redis", "Keys"))


def test_every_key_in_the_table_is_in_the_code() -> None:
    kinds = set(re.findall(r"`([a-z-]+)[:`]", cells("redis", "Keys")))
    quoted = set(re.findall(r"['\"]([a-z-]+):?['\"]", LUA + PYTHON))
    assert kinds - quoted == set()


@each(lambda: FIELDS)
def test_every_field_that_functions_read_of_a_record_is_explained(field: str) -> None:
    assert f"`{field}`" in cells("redis", "Fields of a job's record")


@each(lambda: STATES)
def test_every_state_is_in_the_picture(state: str) -> None:
    assert "](states.svg)" in section("execution", "The states of a job")
    assert f">{state}</text>" in (ROOT / "docs" / "states.svg").read_text()


def test_every_public_name_is_on_the_page_of_the_public_face() -> None:
    assert {name for name in PUBLIC if f"`{name}" not in page("api")} == set()
    assert set(re.findall(r"^::: coordinator\.[\w.]*?(\w+)$", page("python"), re.MULTILINE)) == PUBLIC


def test_every_call_of_the_public_face_is_on_its_page() -> None:
    calls = {name for name, _ in inspect.getmembers(Coordinator, inspect.isfunction) if not name.startswith("_")}
    assert {name for name in calls if f"`{name}(" not in page("api")} == set()
    assert {option for option in SubmitOptions.__annotations__ if f"| `{option}` |" not in page("api")} == set()


def test_the_page_of_the_public_face_promises_nothing_that_is_not_there() -> None:
    rows = [line for line in page("api").splitlines() if line.startswith("| `") and "*(later)*" not in line]
    promised = {name for row in rows for name in re.findall(r"`(\w+)\(", row.split("|")[1])}
    assert {name for name in promised if not hasattr(Coordinator, name)} == set()
    assert {"step", "rollback", "fault", "acts"} <= {field.name for field in fields(Job)}


@pytest.mark.parametrize("settings", [Settings, ServiceSettings])
def test_every_setting_has_a_description_with_its_unit(settings: type[Settings] | type[ServiceSettings]) -> None:
    for name, field in settings.model_fields.items():
        assert field.description, name
        if field.annotation is float:
            assert "in seconds" in field.description, name
        if field.annotation is int:
            assert re.search(r"in bytes|number of", field.description), name
        assert f"| `{name}` |" in page("settings")
