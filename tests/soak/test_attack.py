"""Each server of a fleet is harmed in each way: `make soak ARGS="-k 'attack and broker and hung'"`, an hour for all."""

from pathlib import Path

import pytest

from tests.harness.attack import FAULTS, TARGETS, Attack
from tests.harness.redis import RedisServer

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("how", FAULTS)
@pytest.mark.parametrize("target", TARGETS)
def test_an_attack_harms_nobody_who_is_healthy(
    redis_server: RedisServer, prefix: str, tmp_path: Path, target: str, how: str
) -> None:
    Attack(tmp_path, redis_server, prefix, jobs=2_000, seconds=40).run(target, how)
