"""Long runs are warned about while they run, each time their age has doubled."""

import logging

import pytest

from coordinator.fleet import processes
from coordinator.warden.clock.runner_watch import LongRuns, WorkEntry
from tests.coordinator.warden.clock.test_clock import clock_of, runner_in
from tests.harness.hand_node import Puppet
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

ONE = WorkEntry("1.1.a", "token-1", 0, "one")
NEXT = WorkEntry("1.1.a", "token-2", 0, "one")


def test_a_run_is_due_at_its_first_age_and_then_each_time_that_doubles() -> None:
    runs = LongRuns(30)
    assert [age for age in range(300) if runs.due([ONE], 1000.0 + age)] == [30, 60, 120, 240]


def test_each_taking_is_a_run_of_its_own() -> None:
    runs = LongRuns(30)
    found = [(age, held.token) for age in range(80) for held in runs.due([ONE if age < 35 else NEXT], age)]
    assert found == [(30, "token-1"), (65, "token-2")]


def test_the_warden_names_key_job_age_and_node(
    redis_server: RedisServer, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = clock_of(redis_server, prefix)
    node = Puppet(clock.store)
    clock.step()
    clock.watch.long_runs = LongRuns(0.05)
    node.submit("ledger", job_id="j")
    taken = node.must_take(runner=runner_in(clock, processes.identity()))
    with caplog.at_level(logging.WARNING):
        wait_until(lambda: clock.watch.step(clock.store.now()) or "runs for" in caplog.text, 10)  # type: ignore[func-returns-value]
    (line,) = [record.getMessage() for record in caplog.records if "runs for" in record.message]
    assert line.startswith("job j (ledger) runs for ")
    assert line.endswith(" s on one")
    node.finish(taken)
