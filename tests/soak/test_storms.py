"""Long storms: `make soak`. A seed that fails is told and can be run again alone."""

import pytest

from tests.harness.fleet import Fleet
from tests.harness.storm import Storm

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("seed", range(5))
def test_a_long_storm_loses_nothing_and_keeps_every_lane_in_order(fleet: Fleet, seed: int) -> None:
    Storm(fleet, jobs=2_000, keys=40, kills=100, seed=seed).run()


def test_two_hundred_kills_over_ten_thousand_jobs_lose_nothing(fleet: Fleet) -> None:
    Storm(fleet, jobs=10_000, keys=200, kills=200, seed=5, longest=0.1).run()


def test_a_storm_over_one_lane_keeps_its_order(fleet: Fleet) -> None:
    Storm(fleet, jobs=1_000, keys=1, kills=60, seed=99).run()
