"""Grabs agree with their plain model, and the model sees each planted fault."""

import pytest
import redis

from coordinator.errors import CoordinatorError
from coordinator.store.library import text_of
from tests.harness.redis import RedisServer
from tests.model.clock import Mutation, library
from tests.model.grabbing import Grabbing
from tests.model.mutants.grabs import MUTATIONS

COURSES, STEPS, MOST = 60, 40, 200


def test_grabs_are_as_the_model_says(redis_server: RedisServer) -> None:
    class Whole(Grabbing):
        url = redis_server.url(9)

    for number in range(COURSES):
        Whole.course(number, STEPS)


@pytest.mark.parametrize("mutant", MUTATIONS, ids=lambda one: one.why)
def test_the_model_sees_that(mutant: Mutation, redis_server: RedisServer) -> None:
    class Faulty(Grabbing):
        url, mutation = redis_server.url(9), mutant

    assert text_of(mutant.file).count(mutant.old) == 1
    try:
        for number in range(MOST):
            try:
                Faulty.course(number, STEPS)
            except (AssertionError, CoordinatorError, redis.exceptions.ResponseError):
                return
    finally:
        with redis.Redis.from_url(Faulty.url) as client:
            client.function_delete(library(mutant).name)
    raise AssertionError(f"nobody saw that {mutant.why}")
