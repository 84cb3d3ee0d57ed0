"""Whole orders of any app over a named resource: one at a time, from the first step to the last, whatever happens."""

import re
from itertools import groupby
from typing import Any

from celery import chain

from tests.harness.fleet import Fleet
from tests.harness.standing import Node
from tests.harness.waiting import wait_for_count, wait_until

BOTH = ("-Q", "celery,depot")
NODE = Node("depot", 2, BOTH, {"lock_ttl": 5, "sweep": 0.1, "heartbeat": 0.5, "node_ttl": 4, "long_run": 1})


def order_of(depot: Any, name: str, agent: bool = False) -> Any:
    """Three steps; the second one elsewhere, where an agent does it."""
    second = depot.work.si(f"{name}.2", 0.05)
    return chain(
        depot.work.s(f"{name}.1", 0.05), second.set(queue="agents") if agent else second, depot.work.si(f"{name}.3")
    )


def one_after_another(fleet: Fleet) -> list[str]:
    """The orders in the order of their steps; each step began after the one before it had ended."""
    stamps = fleet.stamps()
    assert [stamp.what for stamp in stamps] == ["begin", "end"] * (len(stamps) // 2)
    begun = [stamp for stamp in stamps if stamp.what == "begin"]
    assert [stamp.fence for stamp in begun] == sorted({stamp.fence for stamp in begun})
    names = [name for name, _ in groupby(stamp.name.partition(".")[0] for stamp in begun)]
    assert len(names) == len(set(names)), f"an order was interrupted: {names}"
    return names


def test_orders_of_several_apps_over_one_resource_run_strictly_one_after_another(fleet: Fleet) -> None:
    depot, shop = fleet.depot, fleet.shop
    fleet.worker("agent", 1, "-Q", "agents", app="depot")
    fleet.worker("shop")
    orders = [depot.coordinator.submit("resource", order_of(depot, f"d{i}", agent=i == 1)) for i in range(3)]
    foreign = chain(shop.work.s("s.1", 0.05), shop.work.si("s.2"))
    orders.append(shop.coordinator.submit("resource", foreign))
    orders.append(depot.coordinator.submit("resource", order_of(depot, "late"), start_at=1))
    orders.append(depot.coordinator.submit("resource", order_of(depot, "last", agent=True)))
    for order in orders:
        assert depot.coordinator.wait(order.id, 60).state == "succeeded"
    assert one_after_another(fleet) == ["d0", "d1", "d2", "s", "late", "last"]
    assert [stamp.name for stamp in fleet.stamps(what="end") if stamp.name.startswith("late")] == ["late.2", "late.3"]


def test_a_runner_of_one_app_is_never_given_a_task_of_another_even_of_the_same_name_and_queue(fleet: Fleet) -> None:
    depot, shop = fleet.depot, fleet.shop
    waiting = [shop.coordinator.submit(f"k{i}", shop.work.s(f"s{i}")) for i in range(20)]
    done = [depot.coordinator.submit(f"d{i}", depot.work.s(f"d{i}")) for i in range(20)]
    for job in done:
        assert depot.coordinator.wait(job.id, 60).node == "one@test"
    assert {shop.coordinator.job(job.id).state for job in waiting} == {"ready"}
    assert shop.coordinator.why(waiting[0].id).codes == ["waiting.node", "rejected.app"]
    fleet.worker("shop", 2, *BOTH)
    for job in waiting:
        assert shop.coordinator.wait(job.id, 60).node == "shop@test"
    assert fleet.stamps(what="astray") == []


def test_with_one_process_and_a_thousand_waiting_the_holder_finishes_first(fleet: Fleet) -> None:
    depot = fleet.depot
    depot.coordinator.submit("busy", depot.held.s("busy"))
    fleet.begun("busy")
    steps = chain(depot.held.s("h.1"), depot.work.si("h.2"), depot.work.si("h.3"))
    holder = depot.coordinator.submit("resource", steps)
    fleet.begun("h.1")
    depot.coordinator.submit_many([("resource", depot.work.s(f"w{i}")) for i in range(500)])
    depot.coordinator.submit_many([(f"other/{i}", depot.work.s(f"o{i}")) for i in range(500)])
    fleet.go("h.1")
    assert depot.coordinator.wait(holder.id, 60).state == "succeeded"
    wait_for_count(lambda: len(fleet.stamps(what="end")), 1003)
    ends = [stamp.name for stamp in fleet.stamps(what="end")]
    assert ends[:3] == ["h.1", "h.2", "h.3"]
    assert [name for name in ends if name.startswith("w")] == [f"w{i}" for i in range(500)]
    fleet.go("busy")


def test_a_holder_past_its_lifetime_is_stopped_where_it_can_be(fleet: Fleet) -> None:
    depot = fleet.depot
    old = depot.coordinator.submit("resource", chain(depot.work.s("a"), depot.held.si("b")), max_lifetime=5)
    new = depot.coordinator.submit("resource", depot.work.s("new"))
    assert depot.coordinator.wait(new.id, 60).state == "succeeded"
    assert (depot.coordinator.job(old.id).state, depot.coordinator.job(old.id).step) == ("expired", 1)
    fleet.go("b")
    assert fleet.stamps("b", "end") == []


def test_orders_that_wait_longer_than_their_lifetime_for_a_fleet_do_not_expire(fleet: Fleet) -> None:
    depot = fleet.depot
    worker = fleet.worker("first", app="depot")
    depot.coordinator.drain("one@test", why="only the first one is to work")
    holder = depot.coordinator.submit(
        "resource", chain(depot.held.s("holder.1"), depot.work.si("holder.2")), max_lifetime=5
    )
    fleet.begun("holder.1")
    orders = [depot.coordinator.submit("resource", order_of(depot, f"d{i}"), max_lifetime=5) for i in range(3)]
    worker.end()
    began = depot.coordinator.job(orders[-1].id).submitted.timestamp()
    wait_until(lambda: depot.coordinator.store._client.time()[0] - began > 6)
    depot.coordinator.undrain("one@test")
    for order in orders:
        assert depot.coordinator.wait(order.id, 60).state == "succeeded"
    assert depot.coordinator.job(holder.id).state == "expired", "its lifetime is by the wall clock"


def test_a_busy_resource_that_is_released_loses_the_process_at_work(fleet: Fleet) -> None:
    depot = fleet.depot
    old = depot.coordinator.submit("resource", depot.held.s("old"), rollback=depot.work.s("rollback")).id
    fleet.begun("old")
    pids = {child.pid for child in fleet.workers[0].children()}
    new = depot.coordinator.submit("resource", depot.work.s("new")).id
    assert depot.coordinator.release("resource", why="stuck") == old
    assert depot.coordinator.wait(new, 60).state == "succeeded"
    wait_until(lambda: pids - {child.pid for child in fleet.workers[0].children()})
    fleet.go("old")
    assert [stamp.name for stamp in fleet.stamps()] == ["old", "new", "new"]


def test_a_completion_callback_that_waits_for_the_next_job_of_the_key_does_not_block_it(fleet: Fleet) -> None:
    depot = fleet.depot
    depot.coordinator.pause("resource", why="both are to stand in line")
    depot.coordinator.submit("resource", depot.work.s("first").set(link=depot.await_job.s("next")))
    depot.coordinator.submit("resource", depot.work.s("next", 0.2), job_id="next")
    depot.coordinator.resume("resource")
    wait_until(lambda: fleet.stamps("callback", "succeeded"))


def test_on_a_fleet_a_long_run_is_warned_about_while_it_lasts_and_a_short_one_is_not(fleet: Fleet) -> None:
    submit = fleet.depot.coordinator.submit
    long = submit("ledger", fleet.depot.held.s("long")).id
    short = submit("other", fleet.depot.work.s("short")).id

    def ages() -> list[int]:
        found = re.findall(rf"job {long} \(ledger\) runs for (\d+) s on one@test", fleet.logs())
        return [int(age) for age in found]

    wait_until(lambda: len(ages()) >= 2, what=fleet.logs)
    assert fleet.depot.coordinator.job(long).state == "running"
    fleet.go("long")
    assert fleet.depot.coordinator.wait(long, 60).state == "succeeded"
    first, second, *_ = ages()
    assert first >= 1
    assert second >= 2 * first
    assert f"job {short}" not in fleet.logs()
