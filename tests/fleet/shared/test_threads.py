"""A pool of threads, where nobody can stop a body."""

from celery import chain

from tests.fleet.mishaps import double_faults, marks
from tests.harness.fleet import ANSWERED, Fleet
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

FAST = {"lock_ttl": 5, "sweep": 0.1, "heartbeat": 0.5, "node_ttl": 4, "retry_delay": 0.01}
NODE = Node("depot", 4, settings=FAST, pool="threads")


def test_a_holder_that_outlives_its_lifetime_is_fenced_off(fleet: Fleet) -> None:
    depot = fleet.depot
    old = depot.coordinator.submit("resource", depot.guarded.s("old"), max_lifetime=4)
    new = depot.coordinator.submit("resource", depot.guarded.s("new"))
    fleet.begun("old", "new")
    found = depot.coordinator.job(old.id)
    assert (found.state, found.error["message"]) == ("expired", "max_lifetime is over")
    assert depot.coordinator.job(new.id).fence > found.fence
    fleet.go("new")
    assert depot.coordinator.wait(new.id, 60).result == 1
    fleet.go("old")
    wait_until(lambda: fleet.stamps("old", "refused"))
    last = depot.coordinator.submit("resource", depot.work.s("last"))
    assert depot.coordinator.wait(last.id, 60).state == "succeeded"
    assert depot.coordinator.job(old.id).state == "expired"
    assert depot.app.AsyncResult(old.id).state == "REVOKED"


def test_an_operator_releases_a_busy_resource_and_its_old_holder_is_fenced(fleet: Fleet) -> None:
    depot = fleet.depot
    old = depot.coordinator.submit("resource", chain(depot.guarded.s("old"), depot.work.si("never"))).id
    fleet.begun("old")
    new = depot.coordinator.submit("resource", depot.guarded.s("new")).id
    assert depot.coordinator.release("resource", why="stuck", by="anna", holder=old) == old
    assert depot.coordinator.release("resource", why="stuck", by="bert", holder=old) is None
    fleet.begun("new")
    fleet.go("new")
    assert depot.coordinator.wait(new, 60).result == 1
    fleet.go("old")
    wait_until(lambda: fleet.stamps("old", "refused"))
    last = depot.coordinator.submit("resource", depot.work.s("last"))
    assert depot.coordinator.wait(last.id, 60).state == "succeeded"
    job = depot.coordinator.job(old)
    assert (job.state, job.error["by"], job.error["message"]) == ("cancelled", "anna", "stuck")
    assert fleet.stamps("never") == []


def test_where_a_rollback_cannot_be_stopped_one_that_overruns_is_a_double_fault_all_the_same(fleet: Fleet) -> None:
    depot, coordinator, submit = fleet.depot, fleet.depot.coordinator, fleet.depot.coordinator.submit
    submit("k", depot.fail.s("job"), job_id="job", rollback=depot.work.s("undo", 5).set(time_limit=1))
    submit("k", depot.work.s("next"), job_id="next")
    assert coordinator.wait("next", 60).state == "succeeded"
    job = coordinator.job("job")
    assert (job.state, job.rollback, (job.fault or {})["type"]) == ("double_fault", "failed", "TimedOut")
    assert marks(fleet) == ["job begin", "job end", "undo begin", "undo end", "next begin", "next end"]
    wait_until(lambda: double_faults(fleet, "job"), what=fleet.logs)
    assert len(double_faults(fleet, "job")) == 1


def test_every_wake_up_may_come_twice(fleet: Fleet) -> None:
    coordinator, work, jobs = fleet.depot.coordinator, fleet.depot.work, list[str]()
    wakes = fleet.wakes_of("one@test")
    for i in range(50):
        jobs.append(coordinator.submit(f"k{i % 5}", work.s(f"{i}", 0.01)).id)
        for bell in coordinator.store.read("ZRANGE", coordinator.store.key("rung", "one@test"), 0, -1):
            coordinator.store.read("RPUSH", wakes, bell)
    for job_id in jobs:
        assert coordinator.wait(job_id, 60).state == "succeeded"
    assert sorted(int(stamp.name) for stamp in fleet.stamps(what="begin")) == list(range(50))


def test_a_rate_limit_of_the_remote_control_keeps_no_job_from_submitting(fleet: Fleet) -> None:
    depot, control = fleet.depot, fleet.depot.app.control
    control.rate_limit(depot.work.name, "1/m", **ANSWERED)
    job = depot.coordinator.wait(depot.coordinator.submit("k", depot.sub_job.s("other", "limited")).id, 60)
    control.rate_limit(depot.work.name, 0, **ANSWERED)
    assert (job.state, job.result) == ("succeeded", ["limited"])
