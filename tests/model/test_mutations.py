"""The machine sees each of these faults: what it does not see it does not guard."""

from collections.abc import Iterable

import pytest
import redis

from coordinator.errors import CoordinatorError
from coordinator.store.library import text_of
from tests.harness.each import each
from tests.harness.redis import RedisServer
from tests.model.clock import Mutation, library
from tests.model.mutants import MUTATIONS
from tests.model.wholes import Whole

STEPS = 60
OFTEN, SELDOM = 400, 1600  # courses in which a fault must be met
Courses = Iterable[tuple[int, int]]  # the number of each, and its steps


def named(mutation: Mutation) -> str:
    return mutation.why


def is_seen(url: str, mutation: Mutation | None, courses: Courses) -> bool:
    class Faulty(Whole):
        pass

    Faulty.url, Faulty.mutation = url, mutation
    try:
        for number, steps in courses:
            Faulty.course(number, steps)
    except (AssertionError, CoordinatorError, redis.exceptions.ResponseError):
        return True
    finally:
        if mutation:
            with redis.Redis.from_url(url) as client:
                client.function_delete(library(mutation).name)
    return False


def courses(most: int) -> Courses:
    return ((number, STEPS) for number in range(most))


@each(lambda: MUTATIONS, named)
def test_a_mutation_changes_what_is_there(mutation: Mutation) -> None:
    assert text_of(mutation.file).count(mutation.old) == 1, f"not once in {mutation.file}.lua: it went elsewhere?"
    assert mutation.old != mutation.new


def test_no_fault_is_named_twice() -> None:
    assert len({one.why for one in MUTATIONS}) == len(MUTATIONS)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutation", [one for one in MUTATIONS if not one.seldom], ids=named)
def test_the_machine_sees_that(mutation: Mutation, redis_server: RedisServer) -> None:
    assert is_seen(redis_server.url(9), mutation, courses(OFTEN))
