"""Jobs over several keys on a fleet."""

import random

from coordinator import InvalidJob
from tests.harness.fleet import Fleet
from tests.harness.waiting import wait_for_count


def test_a_thousand_jobs_over_several_of_ten_keys_all_end_and_never_two_on_one(fleet: Fleet) -> None:
    chance = random.Random(5)
    coordinator, work = fleet.coordinator, fleet.shop.work
    keys = [f"k{i}" for i in range(10)]
    wanted = {f"j{i}": chance.sample(keys, chance.randint(2, 4)) for i in range(1000)}
    coordinator.submit_many((keys, work.s(name), {"job_id": name}) for name, keys in wanted.items())
    for name in ("one", "two"):
        fleet.worker(name)
    for name in chance.sample(sorted(wanted), 200):
        try:
            coordinator.move(name, priority=chance.choice([None, -5, 5]), to=chance.choice(["back", "front"]))
        except InvalidJob:
            assert coordinator.job(name).state != "waiting"
    wait_for_count(lambda: coordinator.counts()["succeeded"], 1000, 30, lambda: str(coordinator.counts()))
    busy: dict[str, str] = {}
    for stamp in fleet.stamps():
        for key in wanted[stamp.name]:
            holder = busy.pop(key, "")
            assert holder == ("" if stamp.what == "begin" else stamp.name)
            if stamp.what == "begin":
                busy[key] = stamp.name
    assert busy == {}
    assert coordinator.lanes() == []
