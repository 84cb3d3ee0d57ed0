"""A resource, its holder and its line when Redis and the fleet restart, and when Redis is full."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import chain, group

from coordinator import Job, StoreRefused
from tests.harness.fleet import Fleet
from tests.harness.redis import RedisServer
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

NODE = Node("depot", 3, settings={"lock_ttl": 5, "sweep": 0.1, "heartbeat": 0.5, "node_ttl": 4})
OTHER = "one@test"


@pytest.fixture(scope="module")
def environ(own_redis: RedisServer) -> dict[str, str]:
    """The coordinator's Redis may be killed or filled; not so that of the broker."""
    return {"COORDINATOR_URL": own_redis.url(0)}


class Orders:
    """Each over a resource of its own, with five jobs behind it. They are at work, before a step elsewhere, between two
    attempts, before sub-results.
    """

    def __init__(self, fleet: Fleet) -> None:
        depot, agents = fleet.depot, {"queue": "agents"}
        self.coordinator = depot.coordinator
        self._stands = {
            "work": (depot.held.si("work.2"), "running"),
            "next": (depot.work.si("next.2").set(**agents), "ready"),
            "rest": (depot.stumble.si([], "rest.2", 2), "retrying"),
            "subs": (group(depot.work.si("subs.2").set(**agents), depot.add.si(1, 1).set(**agents)), "parked"),
        }
        self.lines = dict[str, list[str]]()
        for at, (second, _) in self._stands.items():
            steps = chain(depot.work.s(f"{at}.1"), second, depot.work.si(f"{at}.3"))
            self.lines[at] = [self.coordinator.submit(at, steps, max_attempts=2, retry_delay=10).id]
            self.lines[at] += [self.coordinator.submit(at, depot.work.s(f"{at}.w{i}")).id for i in range(5)]

    def holders(self) -> dict[str, Job]:
        return {at: self.coordinator.job(line[0]) for at, line in self.lines.items()}

    def stand(self) -> bool:
        return all((job.step, job.state) == (1, self._stands[at][1]) for at, job in self.holders().items())

    def instants(self) -> list[tuple[Any, Any]]:
        found = [self.coordinator.job(one) for line in self.lines.values() for one in line]
        return [(job.submitted, job.taken) for job in found]


def test_a_restart_of_everything_keeps_holder_line_and_instants(fleet: Fleet, own_redis: RedisServer) -> None:
    coordinator = fleet.depot.coordinator
    worker = fleet.worker("first", app="depot")
    coordinator.drain(OTHER, why="only the other one is to work")
    orders = Orders(fleet)
    wait_until(orders.stand, what=fleet.logs)
    fleet.begun("work.2")
    before, holders = orders.instants(), orders.holders()
    worker.end()
    own_redis.kill()
    own_redis.start()
    coordinator.store.close()  # what it was connected to is gone
    for at, line in orders.lines.items():
        assert coordinator.lane(at).jobs == tuple(line)
    assert orders.instants() == before
    coordinator.undrain(OTHER)
    fleet.worker("agent", 2, "-Q", "agents", app="depot")
    fleet.go("work.2")
    for at, line in orders.lines.items():
        found = [coordinator.wait(one, 60) for one in line]
        assert [job.state for job in found] == ["succeeded"] * 6
        assert found[0].taken == holders[at].taken
        assert (found[0].fence > holders[at].fence) == (at != "subs"), "the last step, a chord, was taken before"
        assert found[0].losses == (1 if at == "work" else 0)
        begun = [stamp.name for stamp in fleet.stamps(what="begin") if stamp.name.startswith(f"{at}.")]
        twice = [] if at in ("next", "subs") else [f"{at}.2"]
        assert begun == [f"{at}.1", f"{at}.2", *twice, f"{at}.3", *(f"{at}.w{i}" for i in range(5))]


def test_a_redis_that_restarts_under_a_holder_and_a_hundred_waiters_costs_nobody_his_place(
    fleet: Fleet, own_redis: RedisServer
) -> None:
    depot = fleet.depot
    coordinator = depot.coordinator
    holder = coordinator.submit("resource", depot.held.s("holder")).id
    fleet.begun("holder")
    jobs = [one.id for one in coordinator.submit_many([("resource", depot.work.s(f"w{i}")) for i in range(100)])]
    own_redis.kill()
    own_redis.start()
    coordinator.store.close()  # what it was connected to is gone
    assert coordinator.lane("resource", 200).jobs == (holder, *jobs)
    fleet.go("holder")
    assert coordinator.wait(jobs[-1], 60).state == "succeeded"
    job = coordinator.job(holder)
    assert (job.state, job.attempt, job.losses) == ("succeeded", 1, 0)
    assert [stamp.name for stamp in fleet.stamps(what="end")] == ["holder", *(f"w{i}" for i in range(100))]


def test_a_redis_that_restarts_leaves_every_counter_as_it_was(fleet: Fleet, own_redis: RedisServer) -> None:
    depot = fleet.depot
    coordinator, submit = depot.coordinator, depot.coordinator.submit
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
    wait_until(lambda: all(coordinator.job(one).state == state for state, one in jobs.items()), what=fleet.logs)
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
        assert coordinator.wait(jobs[state], 60).state == "succeeded"
    for state in ("held", "retrying", "scheduled", "ready"):
        assert coordinator.cancel(jobs[state]) == "cancelled"
    after = {"succeeded": 4, "failed": 1, "rolled_back": 1, "cancelled": 4, "created": 10, "retries": 2}
    assert {name: number for name, number in coordinator.counts().items() if number} == after


def test_scripts_that_were_flushed_are_loaded_again(fleet: Fleet, own_redis: RedisServer) -> None:
    depot = fleet.depot
    orders = [depot.coordinator.submit("resource", chain(depot.held.s("a"), depot.work.si("b")))]
    fleet.begun("a")
    with own_redis.client(0) as client:
        client.script_flush()
    orders.append(depot.coordinator.submit("resource", depot.work.s("c")))
    fleet.go("a")
    assert [depot.coordinator.wait(order.id, 60).state for order in orders] == ["succeeded"] * 2
    assert [stamp.name for stamp in fleet.stamps(what="begin")] == ["a", "b", "c"]


@pytest.mark.parametrize("ending", ["well", "badly", "in steps", "parked"])
def test_a_full_redis_refuses_what_is_submitted_and_lets_what_runs_end(
    fleet: Fleet, own_redis: RedisServer, ending: str
) -> None:
    depot = fleet.depot
    coordinator = depot.coordinator
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
        assert coordinator.wait(after.id, 60).state == "succeeded"
        client.config_set("maxmemory", "0")
    assert coordinator.job(job.id).state == ("failed" if ending == "badly" else "succeeded")
    assert coordinator.job(job.id).losses == 0
    again = coordinator.submit("resource", depot.work.s("again"), job_id="refused")
    assert (again.outcome, coordinator.wait("refused", 60).state) == ("started", "succeeded")


def test_a_redis_that_stays_full_takes_nothing_from_who_holds(fleet: Fleet, own_redis: RedisServer) -> None:
    depot = fleet.depot
    job = depot.coordinator.submit("resource", depot.held.s("a")).id
    fleet.begun("a")
    store = depot.coordinator.store
    with own_redis.client(0) as client:
        client.config_set("maxmemory", "1")
        since = client.time()[0]
        wait_until(lambda: client.time()[0] > since + 2 * NODE.settings["lock_ttl"])
        assert client.pttl(store.key("lock", "resource")) > 0
        assert client.zrangebyscore(store.key("alive"), client.time()[0] * 1000, "+inf") == [OTHER]
        assert depot.coordinator.job(job).state == "running"
        assert depot.coordinator.cancel(job, why="enough") == "running"
        assert depot.coordinator.wait(job, 60).state == "cancelled"
        client.config_set("maxmemory", "0")
    assert depot.coordinator.job(job).losses == 0
