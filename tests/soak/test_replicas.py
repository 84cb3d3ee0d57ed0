"""The whole checker of documents: `make soak`. A seed that fails is told and can be run again alone."""

import random
from pathlib import Path

import pytest

from tests.consistency.checker import Trial
from tests.consistency.members import Members
from tests.harness.redis import RedisServer

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


@pytest.mark.parametrize("seed", range(4))
def test_a_replica_set_goes_through_thirty_mishaps(
    apart: Members, own_redis: RedisServer, tmp_path: Path, seed: int
) -> None:
    mishaps = ["hang", "full", "die", "die", "cut", "restart"] * 5
    random.Random(seed).shuffle(mishaps)
    trial = Trial(apart, own_redis, tmp_path / "redis", seed)
    trial.breath = 0  # it has minutes
    trial.run(mishaps, 1_000)
