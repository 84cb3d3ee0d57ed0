"""Long runs are warned about while they run, each time their age has doubled."""

import logging
from itertools import pairwise

import pytest

from coordinator import processes
from coordinator.warden import Held, LongRuns
from tests.coordinator.test_warden import warden_of
from tests.puppet import Puppet
from tests.servers import RedisServer
from tests.waiting import wait_until

ONE = Held("1.1.a", "token-1", 0, "one")


def test_a_run_is_due_at_its_first_age_and_then_each_time_that_doubles() -> None:
    runs, ages = LongRuns(0.1), list[float]()
    assert runs.due([ONE]) == []

    def looked() -> bool:
        ages.extend(age for _, age in runs.due([ONE]))
        return len(ages) == 4

    wait_until(looked, 10)
    assert ages[0] >= 0.1
    assert all(later >= 2 * sooner for sooner, later in pairwise(ages)), ages


def test_each_taking_is_a_run_of_its_own() -> None:
    runs, warned = LongRuns(0.1), list[str]()
    second = Held("1.1.a", "token-2", 0, "one")

    def looked(held: Held) -> bool:
        warned.extend(held.token for held, _ in runs.due([held]))
        return bool(warned)

    wait_until(lambda: looked(ONE), 10)
    assert warned == ["token-1"]
    assert runs.due([second]) == []
    wait_until(lambda: looked(second) and len(warned) == 2, 10)
    assert warned == ["token-1", "token-2"]


def test_the_warden_names_key_job_age_and_node(
    redis_server: RedisServer, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    warden = warden_of(redis_server, prefix)
    node = Puppet(warden.store)
    warden.step()
    warden.long_runs = LongRuns(0.05)
    node.submit("ledger", job_id="j")
    taken = node.take(runner=f"{processes.identity()}.0")
    assert taken
    with caplog.at_level(logging.WARNING):
        wait_until(lambda: warden.watch() or "runs for" in caplog.text, 10)  # type: ignore[func-returns-value]
    (line,) = [record.getMessage() for record in caplog.records if "runs for" in record.message]
    assert line.startswith("job j (ledger) runs for ")
    assert line.endswith(" s on one")
    node.finish(taken)
