"""The short form of the attack: store, broker and backend are each harmed once; tests/soak has the rest."""

from pathlib import Path

import pytest

from tests.harness.attack import Attack
from tests.harness.redis import RedisServer


@pytest.mark.parametrize(
    ("target", "how"),
    [("store", "slow"), ("store", "failed over"), ("broker", "hung"), ("broker", "full"), ("backend", "hung")],
)
def test_an_attack_harms_nobody_who_is_healthy(
    redis_server: RedisServer, prefix: str, tmp_path: Path, target: str, how: str
) -> None:
    Attack(tmp_path, redis_server, prefix, jobs=120, seconds=9).run(target, how)
