"""Each planted defect is seen by the machine beside its model: what it does not see it does not guard."""

from collections.abc import Iterable

import pytest
import redis

from coordinator.errors import CoordinatorError, InvalidJob
from proof.model.clock import library
from proof.model.grabbing import Grabbing
from proof.model.grabbing_jobs import GrabbingJobs
from proof.model.mutants import endings, grabs, lanes, sorters, starts, takings, wardens
from proof.model.mutants.mutant import Mutant
from proof.model.starts import Starts
from proof.model.steps import Stepping
from proof.model.wholes import Whole
from tests.harness.redis import RedisServer

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
    others = (number for number in range(400) if number != mutant.course)
    assert is_seen(redis_server.url(9), mutant, machine, (mutant.course, *others))
