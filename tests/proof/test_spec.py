"""The specifications of a lane and of a quota: TLC sees them hold in a small world, and break there without a guard."""

import re
from pathlib import Path

import pytest

from proof.mutants import mutants_of_page
from proof.spec.check import GAPS, HERE, HOLDS, LANE, QUOTA, WHOLE, World, check, kept
from proof.spec.course import drawn, followed
from tests.harness.redis import RedisServer

SMALL = World("small", "", {"MaxClaims = 4": "MaxClaims = 2", "MaxStarts = 1": "MaxStarts = 0"})
SMALL_QUOTA = World("small quota", "", {"MaxLosses = 2": "MaxLosses = 0"}, module="MCQuota")
QUICK_ONES = ("no AllLanes", "no StaysInLine", "no RefuseRing", "no ByKind", "no OnlyOnce", "no WaitsItsTurn")
QUICK = [gap for gap in GAPS if gap.name in QUICK_ONES]
FUNCTIONS = HERE.parents[1] / "coordinator" / "core" / "store" / "functions"


@pytest.fixture(autouse=True)
def _quickly_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run of two seconds, Java's second compiler would take half."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


@pytest.mark.parametrize("world", [SMALL, SMALL_QUOTA, *QUICK], ids=lambda world: world.name)
def test_tlc_agrees(world: World, tmp_path: Path) -> None:
    found = check(world, tmp_path)
    assert found.good, found.said


@pytest.mark.parametrize("whole", [LANE[0], QUOTA[0]], ids=lambda world: world.name)
def test_each_guard_has_a_configuration_without_it(whole: World) -> None:
    guards, gaps = re.findall(r"(\w+) = TRUE", whole.text()), [gap for gap in GAPS if gap.module == whole.module]
    assert guards == [guard for gap in gaps for guard in re.findall(r"(\w+) = FALSE", gap.text())]


@pytest.mark.parametrize("module", ["Lane.tla", "Quota.tla"])
def test_the_files_that_a_specification_names_are_there(module: str) -> None:
    named = re.findall(r"(?:rules|steps)/\w+\.lua", (HERE / module).read_text())
    assert named
    assert not [name for name in named if not (FUNCTIONS / name).exists()]


def test_the_page_shows_what_tlc_said_of_today_s_specification() -> None:
    assert [(name, wanted) for name, wanted, *_ in kept()] == [(one.name, one.breaks or HOLDS) for one in WHOLE + GAPS]
    assert all(wanted == said for _, wanted, said, *_ in kept())


BROKEN = (
    "a job starts that is in front in one of its lines only",
    "who was started is overtaken by a greater priority",
    "a fence that does not grow",
)


def test_each_course_of_the_real_functions_is_one_of_the_specification(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    mutants = [one.mutant for one in mutants_of_page() if one.mutant.why in BROKEN]
    url, some = redis_server.url(9), range(6)
    courses = [drawn(url, number, mutant) for mutant in (None, *mutants) for number in some]
    known = followed(courses, tmp_path)
    right, *wrong = [{number + 6 * place for number in some} for place in range(1 + len(mutants))]
    assert right <= known
    assert not [mutant.why for mutant, of in zip(mutants, wrong, strict=True) if of <= known]
