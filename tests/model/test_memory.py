"""Jobs in place: the fixture for users' suites does what the real lanes do, whatever is called."""

import inspect
import os
import textwrap
from collections.abc import Iterable, Iterator
from types import FunctionType

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.harness.each import each
from tests.harness.redis import RedisServer
from tests.model.beside import InMemory, Real, both
from tests.model.grabs_in_place import GrabsInPlace
from tests.model.in_place import Both
from tests.model.met import MET
from tests.model.mutants.memory import FAULTS, OF_GRABS, Fault
from tests.model.rows import Rows

Sides = tuple[InMemory, Real]
Courses = Iterable[tuple[int, int]]  # the number of each, and its steps

STEPS = 30
OFTEN, SELDOM = 80, 1600  # courses in which a fault must be met
BOUNDED = settings(
    max_examples=25,  # tests/soak/test_model.py has more, and longer ones
    stateful_step_count=30,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate, *([Phase.shrink] if os.environ.get("MODEL_SHRINK") else [])],
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
    print_blob=False,
)


@pytest.fixture(scope="module")
def sides(redis_server: RedisServer) -> Iterator[Sides]:
    with both(redis_server.url(9), redis_server.fresh_prefix()) as found:
        yield found


def drive(sides: Sides, number: int, bounded: settings) -> None:
    class Here(Rows):
        pass

    Here.sides = sides
    run_state_machine_as_test(seed(number)(Here), settings=bounded)  # type: ignore[no-untyped-call]


@pytest.mark.timeout(600)
def test_jobs_in_place_do_what_they_do_on_a_fleet(sides: Sides) -> None:
    drive(sides, 0, BOUNDED)


def test_grabs_in_place_do_what_they_do_on_a_fleet(sides: Sides) -> None:
    class Here(GrabsInPlace):
        pass

    Here.sides = sides
    for number in range(12):
        Here.course(number, STEPS)


def mutated(fault: Fault) -> FunctionType:
    """The function with the fault in it."""
    text = textwrap.dedent(inspect.getsource(getattr(fault.owner, fault.function)))
    assert text.count(fault.old) == 1, f"not once in {fault.function}: it went elsewhere?"
    found: dict[str, FunctionType] = {}
    code = compile("from __future__ import annotations\n" + text.replace(fault.old, fault.new), fault.why, "exec")
    exec(code, vars(inspect.getmodule(fault.owner)), found)
    return found[fault.function]


def is_seen(sides: Sides, fault: Fault | None, courses: Courses, machine: type[Both] = Rows) -> bool:
    class Here(machine):  # type: ignore[misc,valid-type]
        pass

    Here.sides = sides
    with pytest.MonkeyPatch.context() as patch:
        if fault:
            patch.setattr(fault.owner, fault.function, mutated(fault))
        try:
            for number, steps in courses:
                Here.course(number, steps)
        except (AssertionError, LookupError, TypeError, ValueError):
            return True
    return False


def courses(most: int) -> Courses:
    return ((number, STEPS) for number in range(most))


def named(fault: Fault) -> str:
    return fault.why


@each(lambda: FAULTS, named)
def test_a_fault_changes_what_is_there(fault: Fault) -> None:
    assert mutated(fault)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", [one for one in FAULTS if not one.seldom], ids=named)
def test_the_machine_sees_that(fault: Fault, sides: Sides) -> None:
    """In a course that is known to meet it, and finds nothing without it; else in any other."""
    known = [MET[fault.why]] if fault.why in MET else []
    assert not is_seen(sides, None, known)
    assert is_seen(sides, fault, [*known, *courses(OFTEN)])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", OF_GRABS, ids=named)
def test_the_machine_of_grabs_sees_that(fault: Fault, sides: Sides) -> None:
    assert is_seen(sides, fault, courses(12), GrabsInPlace)
