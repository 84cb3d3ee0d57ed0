"""A node warns of a long run."""

import re

from tests.harness.fleet import Fleet
from tests.harness.waiting import wait_until


def test_on_a_fleet_a_long_run_is_warned_about_while_it_lasts_and_a_short_one_is_not(fleet: Fleet) -> None:
    fleet.configure(sweep=0.05, long_run=1)
    worker = fleet.worker(app="depot")
    submit = fleet.depot.coordinator.submit
    long = submit("ledger", fleet.depot.held.s("long")).id
    short = submit("other", fleet.depot.work.s("short")).id

    def ages() -> list[int]:
        found = re.findall(rf"job {long} \(ledger\) runs for (\d+) s on {worker.name}", fleet.logs())
        return [int(age) for age in found]

    wait_until(lambda: len(ages()) == 2, 20, fleet.logs)
    assert fleet.depot.coordinator.job(long).state == "running"
    fleet.go("long")
    assert fleet.depot.coordinator.wait(long, 20).state == "succeeded"
    first, second = ages()
    assert first >= 1
    assert second >= 2 * first
    assert f"job {short}" not in fleet.logs()
