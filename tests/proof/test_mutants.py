"""Each planted defect is seen by the machine beside its model: what it does not see it does not guard."""

import pytest

from proof.model.clock import library
from proof.mutants import Planted, mutants_of_page
from tests.harness.redis import RedisServer

OFTEN = [one for one in mutants_of_page() if not one.seldom]


def test_each_mutant_has_its_place_and_no_two_are_the_same() -> None:
    mutants = [one.mutant for one in mutants_of_page()]
    assert (
        len({mutant.why for mutant in mutants}) == len({library(mutant).digest for mutant in mutants}) == len(mutants)
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("planted", OFTEN, ids=[one.mutant.why for one in OFTEN])
def test_the_model_sees_that(planted: Planted, redis_server: RedisServer) -> None:
    assert planted.kill(redis_server.url(9))
