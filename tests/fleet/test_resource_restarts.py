"""A resource, its holder and its line when Redis and the fleet restart, and when Redis is full."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import chain, group

from coordinator import StoreRefused
from tests.harness.fleet import Fleet
from tests.harness.leftovers import leftovers
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

FAST = {"lock_ttl": 2, "sweep": 0.1, "heartbeat": 0.5, "node_ttl": 2}


@pytest.fixture
def own_fleet(own_redis: RedisServer, redis_server: RedisServer, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet whose coordinator has a Redis of its own, with AOF, that may be killed or filled; not so its broker."""
    with Fleet(redis_server, own_redis.fresh_prefix(), tmp_path, **FAST) as fleet:
        fleet.environ["COORDINATOR_URL"] = own_redis.url(0)
        yield fleet
        store = fleet.depot.coordinator.store
        wait_until(lambda: not leftovers(store), 10, lambda: f"keys without an owner: {leftovers(store)}")


@pytest.mark.parametrize("at", ["work", "the next step", "rest between attempts", "its sub-results"])
def test_a_restart_of_everything_keeps_holder_line_and_instants(
    own_fleet: Fleet, own_redis: RedisServer, at: str
) -> None:
    fleet, depot = own_fleet, own_fleet.depot
    coordinator = depot.coordinator
    elsewhere = depot.work.si("h.2").set(queue="agents")
    second, state = {
        "work": (depot.held.si("h.2"), "running"),
        "the next step": (elsewhere, "ready"),
        "rest between attempts": (depot.stumble.si([], "h.2", 2), "retrying"),
        "its sub-results": (group(elsewhere, depot.add.si(1, 1).set(queue="agents")), "parked"),
    }[at]
    worker = fleet.worker("first", app="depot")
    steps = chain(depot.work.s("h.1"), second, depot.work.si("h.3"))
    jobs = [coordinator.submit("resource", steps, max_attempts=2, retry_delay=3).id]
    jobs += [coordinator.submit("resource", depot.work.s(f"w{i}")).id for i in range(5)]
    wait_until(lambda: (coordinator.job(jobs[0]).step, coordinator.job(jobs[0]).state) == (1, state))
    if at == "work":
        fleet.begun("h.2")
    before = [(coordinator.job(one).submitted, coordinator.job(one).taken) for one in jobs]
    fence = coordinator.job(jobs[0]).fence
    worker.end()
    own_redis.kill()
    own_redis.start()
    assert coordinator.lane("resource").jobs == tuple(jobs)
    assert [(coordinator.job(one).submitted, coordinator.job(one).taken) for one in jobs] == before
    fleet.worker("second", 2, "-Q", "depot,agents", app="depot")
    fleet.go("h.2")
    found = [coordinator.wait(one, 30) for one in jobs]
    assert [job.state for job in found] == ["succeeded"] * 6
    assert found[0].taken == before[0][1]
    assert (found[0].fence > fence) == (at != "its sub-results"), "the last step, a chord, was taken before"
    assert found[0].losses == (1 if at == "work" else 0)
    begun = [stamp.name for stamp in fleet.stamps(what="begin")]
    twice = [] if at in ("the next step", "its sub-results") else ["h.2"]
    assert begun == ["h.1", "h.2", *twice, "h.3", *(f"w{i}" for i in range(5))]


def test_a_redis_that_restarts_under_a_holder_and_a_hundred_waiters_costs_nobody_his_place(
    own_fleet: Fleet, own_redis: RedisServer
) -> None:
    fleet, depot = own_fleet, own_fleet.depot
    coordinator = depot.coordinator
    fleet.worker(app="depot")
    holder = coordinator.submit("resource", depot.held.s("holder")).id
    fleet.begun("holder")
    jobs = [one.id for one in coordinator.submit_many([("resource", depot.work.s(f"w{i}")) for i in range(100)])]
    own_redis.kill()
    own_redis.start()
    assert coordinator.lane("resource", 200).jobs == (holder, *jobs)
    fleet.go("holder")
    assert coordinator.wait(jobs[-1], 60).state == "succeeded"
    job = coordinator.job(holder)
    assert (job.state, job.attempt, job.losses) == ("succeeded", 1, 0)
    assert [stamp.name for stamp in fleet.stamps(what="end")] == ["holder", *(f"w{i}" for i in range(100))]


def test_a_redis_that_restarts_leaves_every_counter_as_it_was(own_fleet: Fleet, own_redis: RedisServer) -> None:
    fleet, depot = own_fleet, own_fleet.depot
    coordinator, submit = depot.coordinator, depot.coordinator.submit
    fleet.worker(concurrency=3, app="depot")
    later: dict[str, Any] = {"not_before": datetime.now(UTC) + timedelta(hours=1)}
    stands: dict[str, tuple[Any, dict[str, Any]]] = {
        "succeeded": (depot.work.s("good"), {}),
        "failed": (depot.fail.s("bad"), {"max_attempts": 2, "retry_delay": 0}),
        "rolled_back": (depot.fail.s("undone"), {"rollback": depot.work.si("undo")}),
        "held": (depot.fail.s("kept"), {"on_failure": "hold"}),
        "retrying": (depot.fail.s("again"), {"max_attempts": 2, "retry_delay": 3600}),
        "parked": (depot.spread.s("parked", [["held", "sub"]]), {}),
        "scheduled": (depot.work.s("later"), later),
        "ready": (depot.work.s("elsewhere").set(queue="nobody"), {}),
        "running": (depot.held.s("holder"), {}),
    }
    jobs = {state: submit(f"key/{state}", task, **more).id for state, (task, more) in stands.items()}
    jobs["waiting"] = submit("key/running", depot.work.s("waiter")).id
    wait_until(lambda: all(coordinator.job(one).state == state for state, one in jobs.items()), 20, fleet.logs)
    fleet.begun("holder", "sub")
    before = coordinator.counts()
    assert {name: before[name] for name in jobs} == dict.fromkeys(jobs, 1)
    assert (before["created"], before["retries"], before["losses"]) == (10, 2, 0)
    own_redis.kill()
    own_redis.start()
    coordinator.store.close()  # what it was connected to is gone
    assert coordinator.counts() == before
    for name in ("sub", "holder"):
        fleet.go(name)
    for state in ("parked", "running", "waiting"):
        assert coordinator.wait(jobs[state], 30).state == "succeeded"
    for state in ("held", "retrying", "scheduled", "ready"):
        assert coordinator.cancel(jobs[state]) == "cancelled"
    after = {"succeeded": 4, "failed": 1, "rolled_back": 1, "cancelled": 4, "created": 10, "retries": 2}
    assert {name: number for name, number in coordinator.counts().items() if number} == after


def test_scripts_that_were_flushed_are_loaded_again(own_fleet: Fleet, own_redis: RedisServer) -> None:
    fleet, depot = own_fleet, own_fleet.depot
    fleet.worker(app="depot")
    orders = [depot.coordinator.submit("resource", chain(depot.held.s("a"), depot.work.si("b")))]
    fleet.begun("a")
    with own_redis.client(0) as client:
        client.script_flush()
    orders.append(depot.coordinator.submit("resource", depot.work.s("c")))
    fleet.go("a")
    assert [depot.coordinator.wait(order.id, 20).state for order in orders] == ["succeeded"] * 2
    assert [stamp.name for stamp in fleet.stamps(what="begin")] == ["a", "b", "c"]


@pytest.mark.parametrize("ending", ["well", "badly", "in steps", "parked"])
def test_a_full_redis_refuses_what_is_submitted_and_lets_what_runs_end(
    own_fleet: Fleet, own_redis: RedisServer, ending: str
) -> None:
    fleet, depot = own_fleet, own_fleet.depot
    coordinator = depot.coordinator
    fleet.worker(app="depot")
    made = {
        "well": depot.held.s("a"),
        "badly": depot.held.s("a", fail=True),
        "in steps": chain(depot.held.s("a"), depot.work.si("b")),
        "parked": chain(depot.held.s("a"), depot.odd.si("one")),
    }
    job = coordinator.submit("resource", made[ending], max_attempts=2, retry_delay=0)
    fleet.begun("a")
    after = coordinator.submit("resource", depot.work.s("after"))
    with own_redis.client(0) as client:
        client.config_set("maxmemory", "1")
        with pytest.raises(StoreRefused) as refused:
            coordinator.submit("resource", depot.work.s("refused"), job_id="refused")
        assert refused.value.job_id == "refused"
        for _ in range(2):
            fleet.go("a")
        assert coordinator.wait(after.id, 20).state == "succeeded"
        client.config_set("maxmemory", "0")
    assert coordinator.job(job.id).state == ("failed" if ending == "badly" else "succeeded")
    assert coordinator.job(job.id).losses == 0
    again = coordinator.submit("resource", depot.work.s("again"), job_id="refused")
    assert (again.outcome, coordinator.wait("refused", 20).state) == ("started", "succeeded")


def test_a_redis_that_stays_full_takes_nothing_from_who_holds(own_fleet: Fleet, own_redis: RedisServer) -> None:
    fleet, depot = own_fleet, own_fleet.depot
    worker = fleet.worker(app="depot")
    job = depot.coordinator.submit("resource", depot.held.s("a")).id
    fleet.begun("a")
    store = depot.coordinator.store
    with own_redis.client(0) as client:
        client.config_set("maxmemory", "1")
        since = client.time()[0]
        wait_until(lambda: client.time()[0] > since + 2 * FAST["lock_ttl"])
        assert client.pttl(store.key("lock", "resource")) > 0
        assert client.zrangebyscore(store.key("alive"), client.time()[0] * 1000, "+inf") == [worker.name]
        assert depot.coordinator.job(job).state == "running"
        assert depot.coordinator.cancel(job, why="enough") == "running"
        assert depot.coordinator.wait(job, 20).state == "cancelled"
        client.config_set("maxmemory", "0")
    assert depot.coordinator.job(job).losses == 0
