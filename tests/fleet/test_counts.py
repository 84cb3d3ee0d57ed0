"""Counters: right at any moment, whatever happened; and that nothing but them is left of what is over."""

from collections import Counter
from typing import Any

from coordinator import Coordinator
from coordinator.jobs.record import TERMINAL
from tests.fleet.mishaps import start, tasks_of
from tests.harness.fleet import Fleet
from tests.harness.waiting import looking, wait_until

LIVE = ("waiting", "scheduled", "collected", "ready", "running", "retrying", "parked", "held", "rolling_back")
LASTING = ("fence", "sequence", "bells", "classes", "fits:", "swept", "clock",
           "format", "alive", "room", "counts", "ended", "lane-runs", "samples", "tallies", "measures", "looked",
           "node:",
           "serves:", "tasks:", "work:", "rung:", "declared")  # fmt: skip


def test_the_counters_include_a_job_when_waiting_for_it_ends_and_add_up_at_any_moment(fleet: Fleet) -> None:
    fleet.configure(sweep=0.05, retry_delay=0.01)
    start(fleet)
    shop, tasks, coordinator = fleet.shop, tasks_of(fleet), fleet.coordinator
    kinds: list[tuple[str, Any, dict[str, Any]]] = [
        ("succeeded", shop.add.s(1, 2), {}),
        ("failed", shop.fail.s(), {}),
        ("rolled_back", shop.fail.s(), {"rollback": shop.add.s(1, 2)}),
        ("double_fault", shop.fail.s(), {"rollback": shop.fail.s(), "max_attempts": 2, "retry_delay": 0.01}),
        ("held", shop.fail.s(), {"on_failure": "hold"}),
        ("succeeded", tasks.spawns.s(), {}),
    ]
    counted: Counter[str] = Counter()
    with looking(coordinator.counts) as seen:
        for i in range(60):
            state, signature, options = kinds[i % 6]
            job = coordinator.submit(f"key/{i}", signature, **options)
            assert coordinator.wait(job.id, 30).state == state
            counted[state] += 1
            assert coordinator.counts()[state] == counted[state]
    for counts in seen:
        assert all(number >= 0 for number in counts.values()), counts
        assert counts["created"] == sum(counts[name] for name in (*LIVE, *TERMINAL))
    assert len(seen) > 100
    assert [one["created"] for one in seen] == sorted(one["created"] for one in seen)
    last = coordinator.counts()
    assert (last["created"], last["retries"], last["faults"], last["waiting"]) == (60, 10, 10, 0)
    held: Any = coordinator.store._client.smembers(coordinator.store.key("state", "held"))
    for job_id in held:
        assert coordinator.cancel(job_id.decode()) == "cancelled"


def test_the_counters_add_up_while_many_lanes_are_at_work(fleet: Fleet) -> None:
    fleet.configure(sweep=0.05)
    start(fleet)
    shop, tasks, coordinator = fleet.shop, tasks_of(fleet), fleet.coordinator
    kinds: list[tuple[Any, dict[str, Any]]] = [
        (shop.add.s(1, 2), {}),
        (tasks.until.s("x", 2), {"max_attempts": 2, "retry_delay": 0.05}),
        (shop.fail.s(), {"rollback": shop.add.s(1, 2)}),
        (tasks.ends_badly.s("x", "exit"), {"rollback": shop.fail.s()}),
        (tasks.spawns.s(), {}),
    ]
    with looking(coordinator.counts) as seen:
        jobs = coordinator.submit_many([(f"key/{i % 20}", *kinds[i % 7 % 5]) for i in range(280)])
        for job in jobs:
            coordinator.wait(job.id, 60)
    for counts in seen:
        assert all(number >= 0 for number in counts.values()), counts
        assert counts["created"] == sum(counts[name] for name in (*LIVE, *TERMINAL))
        assert counts["running"] + counts["rolling_back"] <= 20
    last = coordinator.counts()
    assert (last["created"], last["succeeded"], last["rolled_back"], last["double_fault"]) == (280, 200, 40, 40)
    assert not any(last[name] for name in LIVE)


def test_a_finished_job_vanishes_with_every_key_of_its_own(fleet: Fleet) -> None:
    fleet.configure(sweep=0.05, keep_success=0.3, keep_failure=0.6)
    start(fleet)
    shop, tasks, coordinator = fleet.shop, tasks_of(fleet), fleet.coordinator
    submit, names = coordinator.submit, lambda: mine(coordinator)
    submit(["a", "b"], shop.work.s("long", 0.5), job_id="long")
    submit("a", shop.work.s("more"), when_busy="defer", job_id="more")
    submit("a", shop.work.s("more"), when_busy="defer", job_id="alias")
    submit("c", shop.fail.s(), rollback=shop.fail.s(), max_attempts=2, retry_delay=0, job_id="fault")
    submit("d", tasks.spawns.s(), job_id="spawns")
    wait_until(lambda: coordinator.counts()["succeeded"] == 3 and coordinator.counts()["double_fault"], 20, fleet.logs)
    wait_until(lambda: not names(), 10, lambda: f"left: {names()}")


def mine(client: Coordinator) -> list[str]:
    """Keys of jobs and lanes, whatever they are."""
    names = [name.decode()[len(client.store.prefix) :] for name in client.store._client.scan_iter(count=1000)
             if name.decode().startswith(client.store.prefix)]  # fmt: skip
    return sorted(name for name in names if not name.startswith(LASTING))
