"""When leases are renewed, and that long runs are warned about while they run, each time their age has doubled."""

import logging
import os
import signal
import subprocess
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from coordinator.core.fleet import processes
from coordinator.core.supervisor.runner_watch import LongRuns, WorkEntry
from coordinator.core.supervisor.supervisor import Supervisor
from tests.coordinator.core.supervisor.test_supervisor import identity_of, runner_in, supervisor_of
from tests.harness.hand_node import Puppet
from tests.harness.redis import RedisServer
from tests.harness.stopping import stop
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


def test_the_supervisor_names_key_job_age_and_node(
    redis_server: RedisServer, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = supervisor_of(redis_server, prefix)
    node = Puppet(supervisor.store)
    supervisor.step()
    supervisor.watch.long_runs = LongRuns(0.05)
    node.submit("ledger", job_id="j")
    taken = node.must_take(runner=runner_in(supervisor, processes.identity()))
    with caplog.at_level(logging.WARNING):
        wait_until(lambda: supervisor.watch.step(supervisor.store.now()) or "runs for" in caplog.text)  # type: ignore[func-returns-value]
    (line,) = [record.getMessage() for record in caplog.records if "runs for" in record.message]
    assert line.startswith("job j (ledger) runs for ")
    assert line.endswith(" s on one")
    node.finish(taken)


Look = Callable[[int], bool]


@pytest.fixture
def supervisor(redis_server: RedisServer, prefix: str) -> Supervisor:
    """With leases of 15 s and two looks a second, as usual."""
    return supervisor_of(redis_server, prefix, lock_ttl=15, sweep=0.5)


@pytest.fixture
def look(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> Look:
    """A look of the watch at an instant of the installation's clock (ms); True if it renews leases for their ttl."""
    asked: list[tuple[Any, ...]] = []
    step = supervisor.store.step

    def noted(*args: Any, **options: Any) -> Any:
        asked.append(args[:2])
        return step(*args, **options)

    monkeypatch.setattr(supervisor.store, "step", noted)

    def look(now: int) -> bool:
        asked.clear()
        supervisor.watch.step(now)
        return ("lease_renew", 15_000) in asked

    return look


def test_the_lease_of_a_running_job_is_renewed_each_third_of_its_ttl_or_sooner(
    supervisor: Supervisor, look: Look
) -> None:
    node = Puppet(supervisor.store)
    supervisor.step()
    node.submit("a")
    taken = node.must_take(runner=runner_in(supervisor, processes.identity()))
    began = supervisor.store.now()
    renewed = [now for now in range(began, began + 60_000, 500) if look(now)]
    pauses = [later - one for one, later in pairwise([began, *renewed, began + 60_000])]
    assert max(pauses) <= 5_000
    assert min(pauses[:-1]) >= 2_500, "that would cost a round trip more often than planned"
    node.finish(taken)


def test_a_supervisor_that_stood_still_renews_once_also_for_processes_that_are_stopped(
    supervisor: Supervisor, look: Look, sleeper: subprocess.Popen[bytes]
) -> None:
    node = Puppet(supervisor.store)
    supervisor.step()
    node.submit("a")
    taken = node.must_take(runner=runner_in(supervisor, identity_of(sleeper)))
    stop(sleeper)
    began = supervisor.store.now()
    assert not any(look(now) for now in range(began, began + 10_000, 500))
    assert look(began + 9_500 + 7_500), "half of the ttl later"
    assert not any(look(now) for now in range(began + 17_500, began + 27_500, 500))
    os.kill(sleeper.pid, signal.SIGCONT)
    node.finish(taken)
