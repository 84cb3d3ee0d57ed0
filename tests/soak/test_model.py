"""The machine of tests/model for long: `make soak`. A seed that fails is told and can be run again alone."""

import os

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.harness.redis import RedisServer
from tests.model.clock import Mutation
from tests.model.mutants import MUTATIONS
from tests.model.mutants.memory import FAULTS, Fault
from tests.model.test_memory import BOUNDED, Sides, drive, sides
from tests.model.test_memory import SELDOM as SELDOM_IN_PLACE
from tests.model.test_memory import courses as courses_in_place
from tests.model.test_memory import is_seen as is_fault_seen
from tests.model.test_mutations import SELDOM, courses, is_seen, named
from tests.model.wholes import Whole

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

__all__ = ["sides"]  # a fixture

EXAMPLES, STEPS = 400, 120
SEED = int(os.environ.get("MODEL_SEED", "0")) or int.from_bytes(os.urandom(4), "big")


@pytest.mark.parametrize("number", range(5))
def test_lanes_do_what_the_model_does_for_long(redis_server: RedisServer, number: int) -> None:
    print(f"MODEL_SEED={SEED}, number {number}")
    long = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )

    class Here(Whole):
        url = redis_server.url(9)

    run_state_machine_as_test(seed(SEED + number)(Here), settings=long)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("mutation", [one for one in MUTATIONS if one.seldom], ids=named)
def test_the_machine_sees_what_it_seldom_meets(mutation: Mutation, redis_server: RedisServer) -> None:
    assert is_seen(redis_server.url(9), mutation, courses(SELDOM))


@pytest.mark.parametrize("number", range(5))
def test_jobs_in_place_do_what_they_do_on_a_fleet_for_long(sides: Sides, number: int) -> None:
    print(f"MODEL_SEED={SEED}, number {number}")
    phases = [Phase.generate, Phase.shrink]
    long = settings(BOUNDED, max_examples=EXAMPLES, stateful_step_count=60, derandomize=False, phases=phases)
    drive(sides, SEED + number, long)


@pytest.mark.parametrize("fault", [one for one in FAULTS if one.seldom], ids=lambda fault: str(fault.why))
def test_the_machine_sees_in_place_what_it_seldom_meets(fault: Fault, sides: Sides) -> None:
    assert is_fault_seen(sides, fault, courses_in_place(SELDOM_IN_PLACE))
