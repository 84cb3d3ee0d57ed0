"""Lanes of which several jobs may run at once, on a fleet."""

from tests.harness.fleet import Fleet
from tests.harness.installation import Stamp
from tests.harness.waiting import wait_until


def test_a_limit_holds_on_a_fleet_and_one_of_weight_all_is_not_starved(fleet: Fleet) -> None:
    coordinator, work = fleet.coordinator, fleet.shop.work
    coordinator.set_limit("licence", 3)
    for name in ("one", "two"):
        fleet.worker(name, concurrency=4)
    light = [coordinator.submit("licence", work.s(f"light{i}", 0.05)).id for i in range(20)]
    heavy = coordinator.submit("licence", work.s("heavy", 0.1), exclusive=True).id
    light += [coordinator.submit("licence", work.s(f"light{i}", 0.05)).id for i in range(20, 60)]
    wait_until(lambda: all(coordinator.job(one).over for one in (*light, heavy)), 60)
    stamps = fleet.stamps()
    assert max(at_once(stamps)) == 3
    began = [stamp.name for stamp in stamps if stamp.what == "begin"]
    place = began.index("heavy")
    assert sorted(began[:place]) == sorted(f"light{i}" for i in range(20))
    beside = [stamp.name for stamp in stamps if within(stamps, "heavy", stamp)]
    assert beside == ["heavy", "heavy"]
    coordinator.set_limit("licence", 1)


def at_once(stamps: list[Stamp]) -> list[int]:
    """How many were at work after each stamp."""
    found, now = [], 0
    for stamp in stamps:
        now += 1 if stamp.what == "begin" else -1
        found.append(now)
    return found


def within(stamps: list[Stamp], name: str, one: Stamp) -> bool:
    begin, end = (stamp.at for stamp in stamps if stamp.name == name)
    return begin <= one.at <= end
