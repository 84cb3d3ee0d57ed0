"""The machine sees each of these faults: what it does not see it does not guard."""

import pytest
import redis
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from coordinator.errors import CoordinatorError
from coordinator.store.library import text_of
from tests.harness.redis import RedisServer
from tests.model.clock import Mutation, library
from tests.model.mutants import MUTATIONS
from tests.model.wholes import Whole

OFTEN, SELDOM = 20, 80  # rounds in which a fault must be met
ROUND = 19  # examples; of more, hypothesis makes the first tenth so short that little happens


def named(mutation: Mutation) -> str:
    return mutation.why


def is_seen(url: str, mutation: Mutation, rounds: int) -> bool:
    class Faulty(Whole):
        pass

    Faulty.url, Faulty.mutation = url, mutation
    bounded = settings(
        max_examples=ROUND,
        stateful_step_count=60,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    try:
        for number in range(rounds):
            run_state_machine_as_test(seed(number)(Faulty), settings=bounded)  # type: ignore[no-untyped-call]
    except (AssertionError, CoordinatorError, redis.exceptions.ResponseError):
        return True
    finally:
        with redis.Redis.from_url(url) as client:
            client.function_delete(library(mutation).name)
    return False


@pytest.mark.parametrize("mutation", MUTATIONS, ids=named)
def test_a_mutation_changes_what_is_there(mutation: Mutation) -> None:
    assert text_of(mutation.file).count(mutation.old) == 1, f"not once in {mutation.file}.lua: it went elsewhere?"
    assert mutation.old != mutation.new


def test_no_fault_is_named_twice() -> None:
    assert len({mutation.why for mutation in MUTATIONS}) == len(MUTATIONS)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutation", [one for one in MUTATIONS if not one.seldom], ids=named)
def test_the_machine_sees_that(mutation: Mutation, redis_server: RedisServer) -> None:
    assert is_seen(redis_server.url(9), mutation, OFTEN)
