"""Beats that are killed, stopped and an hour wrong: for minutes what tests/fleet does for some seconds."""

from pathlib import Path

import pytest

from tests.coordinator.scheduler.beats import Beats
from tests.fleet.steered import Fleet, play
from tests.fleet.test_beats import fire_each_tick_once
from tests.harness.redis import RedisServer

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


def test_for_a_minute_beats_that_are_killed_fire_each_tick_once(
    redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    fire_each_tick_once(redis_server, prefix, tmp_path, seconds=60)


def test_for_two_minutes_eight_beats_in_trouble_send_no_tick_twice_and_miss_none_while_the_schedule_is_steered(
    redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    with Fleet(redis_server, prefix, tmp_path, 8) as fleet:
        play(Beats(redis_server, prefix), fleet, seconds=120)
