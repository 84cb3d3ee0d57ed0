"""No server's first fence is behind one that was lost, however many began between; each planted fault is seen."""

import pytest
import redis

from coordinator.store.library import text_of
from tests.harness.redis import RedisServer
from tests.model.clock import Mutation, library
from tests.model.mutants.starts import MUTATIONS
from tests.model.starts import Starts

STEPS, COURSES = 30, 40


def test_fences_grow_over_any_number_of_starts(redis_server: RedisServer) -> None:
    class Whole(Starts):
        url = redis_server.url(9)

    for number in range(COURSES):
        Whole.course(number, STEPS)


@pytest.mark.parametrize("mutant", MUTATIONS, ids=lambda one: one.why)
def test_the_model_sees_that(mutant: Mutation, redis_server: RedisServer) -> None:
    class Faulty(Starts):
        url, mutation, exact = redis_server.url(9), mutant, False

    assert text_of(mutant.file).count(mutant.old) == 1
    try:
        for number in range(COURSES):
            try:
                Faulty.course(number, STEPS)
            except AssertionError:
                return
    finally:
        with redis.Redis.from_url(Faulty.url) as client:
            client.function_delete(library(mutant).name)
    raise AssertionError(f"nobody saw that {mutant.why}")
