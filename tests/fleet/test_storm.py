"""A short storm; the long ones are in tests/soak."""

from tests.harness.fleet import Fleet
from tests.harness.storm import Storm


def test_in_a_storm_of_kills_and_stops_nothing_is_lost_and_every_lane_keeps_its_order(fleet: Fleet) -> None:
    Storm(fleet, jobs=2_000, keys=40, kills=20, seed=7).run()
