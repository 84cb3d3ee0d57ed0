"""Beats that are killed, stopped and an hour wrong, while the schedule is steered."""

from pathlib import Path

import pytest

from tests.coordinator.scheduler.beats import Beats
from tests.fleet.steered import Fleet, play
from tests.harness.long import long
from tests.harness.redis import RedisServer


@pytest.mark.timeout(long(300, 600))
def test_beats_in_trouble_send_no_tick_twice_and_miss_none_while_the_schedule_is_steered(
    redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    with Fleet(redis_server, prefix, tmp_path, long(3, 8)) as fleet:
        play(Beats(redis_server, prefix), fleet, seconds=long(12, 120))
