"""Grabs agree with their plain model, and the model sees each planted fault."""

import pytest
import redis

from coordinator.errors import CoordinatorError
from coordinator.store.library import text_of
from tests.harness.redis import RedisServer
from tests.model.clock import Mutation, library
from tests.model.grabbing import Grabbing
from tests.model.grabbing_jobs import GrabbingJobs
from tests.model.mutants.grabs import MUTATIONS, OF_JOBS

STEPS, MOST = 40, 200
KNOWN = {"an operator's retry takes a completed instance": 23}  # the course that meets it; the others meet early ones
ALL = [(Grabbing, one) for one in MUTATIONS] + [(GrabbingJobs, one) for one in OF_JOBS]


@pytest.mark.parametrize(("machine", "courses"), [(Grabbing, 60), (GrabbingJobs, 30)])
def test_grabs_are_as_the_model_says(redis_server: RedisServer, machine: type[Grabbing], courses: int) -> None:
    class Whole(machine):  # type: ignore[misc,valid-type]
        url = redis_server.url(9)

    for number in range(courses):
        Whole.course(number, STEPS)


@pytest.mark.parametrize(("machine", "mutant"), ALL, ids=lambda one: getattr(one, "why", ""))
def test_the_model_sees_that(machine: type[Grabbing], mutant: Mutation, redis_server: RedisServer) -> None:
    class Faulty(machine):  # type: ignore[misc,valid-type]
        url, mutation = redis_server.url(9), mutant

    assert text_of(mutant.file).count(mutant.old) == 1
    try:
        for number in (KNOWN.get(mutant.why, 0), *range(MOST)):
            try:
                Faulty.course(number, STEPS)
            except (AssertionError, CoordinatorError, redis.exceptions.ResponseError):
                return
    finally:
        with redis.Redis.from_url(Faulty.url) as client:
            client.function_delete(library(mutant).name)
    raise AssertionError(f"nobody saw that {mutant.why}")
