"""Each planted defect is seen by the machine beside its model: what it does not see it does not guard."""

import pytest

from proof.model.clock import library
from proof.model.mutants.mutant import Mutant
from proof.model.steps import Stepping
from proof.mutants import FEW, OFTEN, SELDOM, courses_of, killer
from tests.harness.redis import RedisServer


def test_each_mutant_has_its_place_and_no_two_are_the_same() -> None:
    mutants = [mutant for _, mutant in [*OFTEN, *SELDOM]]
    assert (
        len({mutant.why for mutant in mutants}) == len({library(mutant).digest for mutant in mutants}) == len(mutants)
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("machine", "mutant"), OFTEN, ids=[mutant.why for _, mutant in OFTEN])
def test_the_model_sees_that(machine: type[Stepping], mutant: Mutant, redis_server: RedisServer) -> None:
    assert killer(redis_server.url(9), mutant, machine, courses_of(mutant, FEW))
