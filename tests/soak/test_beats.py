"""A minute of what tests/coordinator/test_beats.py does for some seconds."""

from pathlib import Path

import pytest

from tests.fleet.test_beats import fire_each_tick_once
from tests.harness.redis import RedisServer

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


def test_for_a_minute_beats_that_are_killed_fire_each_tick_once(
    redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    fire_each_tick_once(redis_server, prefix, tmp_path, seconds=60)
