"""Attempts, rollback, holding, chains, sub-results on real workers."""

from celery import chain, group

from tests.harness.fleet import Fleet
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

NODE = Node()


def test_a_job_that_fails_always_is_called_as_often_as_allowed_then_rolled_back_once_then_the_next_runs(
    fleet: Fleet,
) -> None:
    shop, coordinator = fleet.shop, fleet.coordinator
    bad = coordinator.submit("k", shop.fail.s("bad"), max_attempts=3, retry_delay=0, rollback=shop.undo.s("bad"))
    good = coordinator.submit("k", shop.work.s("good"))
    assert coordinator.wait(good.id, 60).state == "succeeded"
    job = coordinator.job(bad.id)
    assert (job.state, job.rollback, job.error["type"]) == ("rolled_back", "done", "ValueError")
    assert [(s.name, s.what) for s in fleet.stamps()] == [
        *[("bad", "begin")] * 3, ("bad", "undone"), ("good", "begin"), ("good", "end")]  # fmt: skip


def test_the_steps_of_a_chain_run_in_order_within_the_lane_each_with_a_fence_of_its_own(fleet: Fleet) -> None:
    shop, coordinator = fleet.shop, fleet.coordinator
    order = coordinator.submit("k", chain(shop.add.s(1, 2), shop.add.s(10), shop.add.s(100)))
    after = coordinator.submit("k", shop.work.s("after"))
    job = coordinator.wait(order.id, 60)
    assert (job.state, job.result, job.step, job.attempt) == ("succeeded", 113, 2, 1)
    assert coordinator.wait(after.id, 60).state == "succeeded"
    assert coordinator.job(after.id).fence > job.fence


def test_a_group_in_a_chain_is_a_step_that_parks(fleet: Fleet) -> None:
    shop, coordinator = fleet.shop, fleet.coordinator
    order = coordinator.submit("k", chain(shop.add.s(1, 2), group(shop.add.s(10), shop.add.s(20)), shop.total.s()))
    job = coordinator.wait(order.id, 60)
    assert (job.state, job.result) == ("succeeded", 36)


def test_a_held_job_keeps_its_lane_until_an_operator_decides(fleet: Fleet) -> None:
    shop, coordinator = fleet.shop, fleet.coordinator
    bad = coordinator.submit("k", shop.fail.s("bad"), on_failure="hold")
    after = coordinator.submit("k", shop.work.s("after"))
    assert coordinator.wait(bad.id, 60).state == "held"
    assert coordinator.job(after.id).state == "waiting"
    assert coordinator.counts()["held"] == 1
    assert coordinator.retry(bad.id, why="again") == "ready"
    assert coordinator.wait(bad.id, 60).state == "held"
    assert coordinator.cancel(bad.id) == "cancelled"
    assert coordinator.wait(after.id, 60).state == "succeeded"
    counts = coordinator.counts()
    assert (counts["created"], counts["succeeded"], counts["cancelled"], counts["held"]) == (2, 1, 1, 0)


def test_a_killed_supervisor_costs_nothing(fleet: Fleet) -> None:
    (worker,) = fleet.workers  # its leases last longer than it takes to start a supervisor again, as in use
    long = fleet.coordinator.submit("ledger", fleet.shop.work.s("long", 6))
    fleet.begun("long")
    before = worker.supervisor().pid
    worker.supervisor().kill()
    after = fleet.coordinator.submit("other", fleet.shop.add.s(1, 2))
    assert fleet.coordinator.wait(after.id, 60).result == 3
    wait_until(lambda: [one for one in worker.supervisors() if one.pid != before], what=fleet.logs)
    job = fleet.coordinator.wait(long.id, 60)
    assert (job.state, job.attempt, job.losses) == ("succeeded", 1, 0)
