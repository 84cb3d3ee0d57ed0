"""docs/design.md says what there is: the keys and fields that the scripts name, the calls that the code has."""

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from coordinator import Coordinator, Job
from coordinator.drafts import Options
from coordinator.jobs import TERMINAL

ROOT = Path(__file__).parent.parent
DESIGN = (ROOT / "docs" / "design.md").read_text()
SCRIPTS = "\n".join(path.read_text() for path in sorted((ROOT / "coordinator" / "lua").glob("*.lua")))
KINDS = sorted(set(re.findall(r"P \.\. '([a-z-]+:?)'", SCRIPTS)))
FIELDS = re.findall(r"\bfill\w*\((.*?)\)", SCRIPTS, re.DOTALL)

STATES = sorted(
    {*re.findall(r"HSET'.*'state', '(\w+)'", SCRIPTS), *re.findall(r"into\(id, '(\w+)'", SCRIPTS), *TERMINAL}
)


def section(number: int) -> str:
    return DESIGN.split(f"\n## {number}. ")[1].split("\n## ")[0]


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_that_a_script_names_is_in_the_table(kind: str) -> None:
    cells = " ".join(line.split("|")[1] for line in section(6).splitlines() if line.startswith("| `"))
    assert f"`{kind}" in cells


@pytest.mark.parametrize("field", sorted(re.findall(r"'(\w+)'", " ".join(FIELDS))))
def test_every_field_that_scripts_read_of_a_record_is_explained(field: str) -> None:
    assert f"`{field}`" in section(6)


@pytest.mark.parametrize("state", STATES)
def test_every_state_is_in_the_picture(state: str) -> None:
    assert state in section(4)


def test_every_call_of_the_public_face_is_in_its_table() -> None:
    """Those by which parts and apps are put together aside."""
    wiring = {"companion", "inbox", "schedule_source"}
    calls = {name for name, _ in inspect.getmembers(Coordinator, inspect.isfunction) if not name.startswith("_")}
    assert {name for name in calls - wiring if f"`{name}(" not in section(7)} == set()
    assert {option.name for option in fields(Options) if f"`{option.name}" not in section(7)} == set()


def test_the_table_of_the_public_face_promises_nothing_that_is_not_there() -> None:
    rows = [line for line in section(7).splitlines() if line.startswith("| `") and "*(later)*" not in line]
    promised = {name for row in rows for name in re.findall(r"`(\w+)\(", row.split("|")[1])}
    assert {name for name in promised if not hasattr(Coordinator, name)} == {"current_job"}
    assert {"step", "rollback", "fault", "acts"} <= {field.name for field in fields(Job)}
