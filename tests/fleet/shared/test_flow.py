"""Quotas on a node with a pool of processes: rates to the millisecond, kills, cool-downs, Celery's rate_limit."""

import itertools
import os
import signal
from typing import Any

import pytest

from coordinator import InvalidJob, UnknownQuota
from tests.harness.fleet import ANSWERED, Fleet
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

MODULE = "tests.harness.apps.flow"
NODE = Node("shop", 4, ("-I", MODULE), {"sweep": 0.1, "retry_delay": 0.01})


@pytest.fixture
def flow(fleet: Fleet) -> Any:
    return fleet.tasks(MODULE)


def begins(fleet: Fleet, names: list[str]) -> list[float]:
    """When these began, in seconds, in the order of time."""
    return sorted(stamp.at / 1e6 for stamp in fleet.stamps(what="begin") if stamp.name in names)


def most_at_once(fleet: Fleet, names: list[str]) -> int:
    now = most = 0
    for stamp in fleet.stamps():
        if stamp.name in names:
            now += 1 if stamp.what == "begin" else -1
            most = max(most, now)
    return most


def test_at_most_as_many_run_at_once_as_there_are_units_and_no_unit_idles(fleet: Fleet, flow: Any) -> None:
    fleet.coordinator.quota("converter", concurrency=3)
    names = [f"c{n}" for n in range(24)]
    results = [flow.convert.delay(str(n % 8), name, 0.05) for n, name in enumerate(names)]
    assert [result.get(timeout=60) for result in results] == names
    assert most_at_once(fleet, names) == 3
    assert fleet.coordinator._quotas.read("converter").used == 0


def call_all(fleet: Fleet, flow: Any, names: list[str], tenant: str = "acme") -> list[float]:
    """When Redis let these calls of the tenant start, in seconds. All of them are submitted before the first may."""
    fleet.coordinator.cool_down(f"api/{tenant}", 3600)
    results = [flow.call.delay(tenant, name) for name in names]
    fleet.coordinator.cool_down(f"api/{tenant}")
    assert [result.get(timeout=60) for result in results] == names
    jobs = [fleet.coordinator.job(result.id) for result in results]
    return sorted(job.started.timestamp() for job in jobs if job.started)


@pytest.mark.parametrize(("starts", "number"), [(100, 100), (10, 8), (100, 30)])
def test_starts_keep_a_rate_and_waste_little_of_it(fleet: Fleet, flow: Any, starts: int, number: int) -> None:
    """On a busy machine as many starts take longer without a rate, too; each attempt is told by those beside it."""
    fleet.coordinator.quota("api/acme", rate=f"{starts}/s")
    fleet.coordinator.quota("api/free", concurrency=1000)
    spent, usual = [], (number - 1) / starts
    for attempt in "abc":
        free = call_all(fleet, flow, [f"{attempt}{n} free" for n in range(number)], "free")
        times = call_all(fleet, flow, [f"{attempt}{n}" for n in range(number)])
        assert len(times) == number
        for window in (number - 1, 10, 5):
            spans = [later - earlier for earlier, later in zip(times, times[window:], strict=False)]
            assert all(span > (window - 1) / starts - 0.02 for span in spans), spans
        spent.append((times[-1] - times[0], free[-1] - free[0]))
        if spent[-1][0] < usual / 0.9 + 0.2 + 2 * spent[-1][1]:
            return
    pytest.fail(f"{number} starts took {spent} seconds with and without the rate, by which they take {usual}")


def test_units_of_a_killed_process_come_back_and_its_job_goes_on(fleet: Fleet, flow: Any) -> None:
    fleet.coordinator.quota("q", concurrency=1)
    shop, submit = fleet.shop, fleet.coordinator.submit
    killed = submit("k", shop.toil.s("killed", 100), uses="q", max_losses=2)
    behind = submit("other", shop.work.s("behind"), uses="q")
    wait_until(lambda: fleet.stamps("killed", "begin"), what=fleet.logs)
    os.kill(int(_runner_of(fleet, killed.id)), signal.SIGKILL)
    assert fleet.coordinator.wait(killed.id, 60).losses == 1
    assert fleet.coordinator.wait(behind.id, 60).state == "succeeded"
    first = [stamp.name for stamp in fleet.stamps(what="begin") if stamp.name in ("killed", "behind")]
    assert first == ["killed", "killed", "behind"], "a started job is first in the queue"
    assert fleet.coordinator._quotas.read("q").used == 0


def _runner_of(fleet: Fleet, job_id: str) -> str:
    """The pid of the process that runs it."""
    runner = fleet.coordinator.store.read("HGET", fleet.coordinator.store.key("job", job_id), "runner")
    return str(runner.decode().partition(".")[0])


def test_a_cool_down_sends_the_job_back_and_counts_against_nothing(fleet: Fleet, flow: Any) -> None:
    fleet.coordinator.quota("api/busy", concurrency=2)
    result = flow.polite.delay("busy", "polite", 3)
    assert result.get(timeout=60) == 4
    job = fleet.coordinator.job(result.id)
    assert (job.state, job.losses) == ("succeeded", 0)
    times = begins(fleet, ["polite"])
    assert all(later - earlier > 0.28 for earlier, later in itertools.pairwise(times)), times


def test_a_job_without_the_quota_cannot_cool_it_down(fleet: Fleet, flow: Any) -> None:
    made = fleet.coordinator.submit("k", flow.polite.s("x", "impolite", 1))
    job = fleet.coordinator.wait(made.id, 60)
    assert job.error
    assert "uses no quota to cool down" in job.error["message"]


def test_a_rate_limit_of_celery_is_a_rate_over_the_fleet_and_remote_control_changes_it(fleet: Fleet, flow: Any) -> None:
    names = [f"l{n}" for n in range(8)]
    for name in names:
        fleet.coordinator.submit(name, flow.limited.s(name), job_id=name)
    assert fleet.coordinator.wait(names[-1], 60).state == "succeeded"
    started = [fleet.coordinator.job(name).started for name in names]
    times = sorted(one.timestamp() for one in started if one)
    assert times[-1] - times[0] > 7 * 0.05 - 0.02
    quota = fleet.coordinator._quotas.read(f"rate_limit/{flow.limited.name}")
    assert (quota.rate, quota.burst) == ("20/s", 1)
    (reply,) = fleet.shop.app.control.rate_limit(flow.limited.name, "5/s", **ANSWERED)
    assert "also for jobs over the fleet" in next(iter(reply.values()))["ok"]
    assert fleet.coordinator._quotas.read(quota.name).rate == "5/s"
    fleet.shop.app.control.rate_limit(flow.limited.name, "20/s", **ANSWERED)


def test_a_chain_with_a_rate_limit_is_refused_by_name(fleet: Fleet, flow: Any) -> None:
    with pytest.raises(InvalidJob, match="has a rate limit, which a chain would not keep"):
        fleet.coordinator.submit("k", flow.limited.si("a") | fleet.shop.work.si("b"))


def test_a_call_that_uses_what_nobody_declared_is_refused_at_the_call(fleet: Fleet, flow: Any) -> None:
    fleet.coordinator.quota("api/acme", concurrency=1)
    with pytest.raises(UnknownQuota, match="did you mean 'api/acme'"):
        flow.call.delay("acm", "never")
    assert not fleet.stamps("never")
