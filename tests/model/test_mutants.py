"""Each planted defect is seen by the machine beside its model: what it does not see it does not guard."""

from collections.abc import Iterable

import pytest
import redis

from coordinator.errors import CoordinatorError, InvalidJob
from tests.harness.redis import RedisServer
from tests.model.clock import library
from tests.model.grabbing import Grabbing
from tests.model.grabbing_jobs import GrabbingJobs
from tests.model.mutants import endings, grabs, lanes, sorters, starts, takings, wardens
from tests.model.mutants.mutant import Mutant
from tests.model.starts import Starts
from tests.model.steps import Stepping
from tests.model.wholes import Whole

LANES = (lanes, takings, endings, sorters, wardens)
SELDOM = [mutant for module in LANES for mutant in module.SELDOM]
MACHINES = {
    Whole: [mutant for module in LANES for mutant in module.MUTANTS],
    Grabbing: grabs.MUTANTS,
    GrabbingJobs: grabs.OF_JOBS,
    Starts: starts.MUTANTS,
}
ALL = [(machine, mutant) for machine, mutants in MACHINES.items() for mutant in mutants]
STEPS = 60
FIRST = {  # the course that meets a mutant which no early course meets: looking for it takes minutes
    "an operator's retry takes a completed instance": 23,
    "nobody knows what the code that waits for a lock holds": 29,
    "a job that was not taken after all does not say that it is ready": 44,
    "of those before a job the first one counts only": 99,
    "a lock that Redis keeps too long keeps its lane": 105,
    "a ring that closes later lasts": 105,
    "a waiter for a lock that asks is taken for dead": 105,
    "one of weight `all` has a skip beside it": 105,
}


def is_seen(url: str, mutant: Mutant, machine: type[Stepping], courses: Iterable[int]) -> bool:
    faulty = type("Faulty", (machine,), {"url": url, "mutant": mutant, "exact": False})
    with redis.Redis.from_url(url) as client:
        client.function_load(library(mutant).text, replace=True)
        try:
            for number in courses:
                faulty.course(number, STEPS)
        except InvalidJob:
            raise  # the machine is at fault
        except (AssertionError, CoordinatorError, redis.exceptions.ResponseError):
            return True
        finally:
            client.function_delete(library(mutant).name)
    return False


def test_each_mutant_has_its_place_and_no_two_are_the_same() -> None:
    mutants = [*SELDOM, *(mutant for _, mutant in ALL)]
    assert (
        len({mutant.why for mutant in mutants}) == len({library(mutant).digest for mutant in mutants}) == len(mutants)
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("machine", "mutant"), ALL, ids=[mutant.why for _, mutant in ALL])
def test_the_model_sees_that(machine: type[Stepping], mutant: Mutant, redis_server: RedisServer) -> None:
    assert is_seen(redis_server.url(9), mutant, machine, (FIRST.get(mutant.why, 0), *range(400)))
