"""The machine of tests/model for long: `make soak`. A seed that fails is told and can be run again alone."""

import os

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.harness.redis import RedisServer
from tests.model.mutants.mutant import Mutant
from tests.model.test_mutants import SELDOM, is_seen
from tests.model.wholes import Whole

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

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


@pytest.mark.parametrize("mutant", SELDOM, ids=lambda mutant: mutant.why)
def test_the_model_sees_what_it_seldom_meets(mutant: Mutant, redis_server: RedisServer) -> None:
    assert is_seen(redis_server.url(9), mutant, Whole, range(1600))
