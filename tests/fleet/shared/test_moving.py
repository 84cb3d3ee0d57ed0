"""docs/moving.md: what users of other systems have runs beside what they write here, on one worker."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from uuid import uuid4

import pytest
import redis
from celery import Celery
from celery.exceptions import TaskRevokedError
from celery_once import AlreadyQueued, QueueOnce
from celery_singleton import Singleton

from coordinator import Locked
from tests.fleet.shared.components import deliver, event, kinds, run
from tests.fleet.shared.moving import Moving, again, ended
from tests.harness.fleet import Fleet
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

NODE = Node("moving", 4, settings={"lock_ttl": 5, "sweep": 0.1, "heartbeat": 0.5})


@pytest.fixture
def moving(fleet: Fleet) -> Iterator[Moving]:
    with fleet.server.client(3) as locks:
        yield Moving(fleet, locks)


@pytest.mark.parametrize("library", ["celery_singleton", "celery_once"])
def test_a_second_call_meanwhile_does_not_run(moving: Moving, library: str) -> None:
    for module in (moving.before(library), moving.after(library)):
        customer = f"{module.__name__}.meanwhile"
        first = module.report.delay(customer, "june")
        moving.begun(f"{customer}/june")
        if library == "celery_singleton":
            assert module.report.delay(customer, "july").id == first.id
        else:
            with pytest.raises((AlreadyQueued, Locked)):
                module.report.delay(customer, "july")
        moving.go(f"{customer}/june")
        assert first.get(timeout=60) == f"{customer}/june"
        wait_until(lambda module=module, customer=customer: again(module, customer))
    assert sorted(name.rpartition("/")[2] for name in moving.names()) == ["june", "june", "quick", "quick"]


def test_a_killed_process_leaves_the_lock_and_loses_the_work_but_a_job_runs_again(moving: Moving) -> None:
    singleton, once = moving.before("celery_singleton").report, moving.before("celery_once").report
    lost = [ended(task.delay("deadly", month)) for task, month in ((singleton, "june"), (once, "july"))]
    ended(moving.before("redis_lock").count.delay("deadly", "august"))
    left = [
        moving.locks.ttl(name)
        for name in (*(moving.lock_of(task, "deadly") for task in (singleton, once)), "stock/deadly")
    ]
    assert min(left[:2]) > 3000, "nobody works for this customer for an hour"
    assert left[2] > 30
    assert singleton.delay("deadly", "later").id == lost[0], "the caller is given the failure of the dead one"
    with pytest.raises(AlreadyQueued):
        once.delay("deadly", "later")
    for module, task in (("celery_singleton", "report"), ("celery_once", "report"), ("redis_lock", "count")):
        name = getattr(moving.after(module), task).delay("deadly", module).get(timeout=60)
        assert [(stamp.attempt, stamp.what) for stamp in moving.fleet.stamps(name)] == [
            (1, "begin"), (2, "begin"), (2, "end")]  # fmt: skip
    for library in ("celery_singleton", "celery_once"):
        between = moving.after(library).invoice
        assert between.delay("deadly", f"{library} between").get(timeout=60) == f"deadly/{library} between"
        wait_until(lambda task=between: not moving.locks.exists(moving.lock_of(task, "deadly")))


@pytest.mark.parametrize("library", ["celery_singleton", "celery_once"])
def test_work_that_outlasts_the_expiry_lets_two_in_but_a_lane_lets_one(moving: Moving, library: str) -> None:
    had, have, customer = moving.before(library).report, moving.after(library).report, f"{library}.late"
    ours = have.delay(customer, "ours")
    had.lock_expiry = 1
    more = {"once": {"timeout": 1}} if library == "celery_once" else {}
    first = had.apply_async((customer, "june"), **more)
    moving.begun(f"{customer}/june", f"{customer}/ours")
    wait_until(lambda: not moving.locks.exists(moving.lock_of(had, customer)))
    had.lock_expiry = None
    had.apply_async((customer, "july"))
    moving.begun(f"{customer}/july")
    moving.go(f"{customer}/june")
    first.get(timeout=60)
    wait_until(
        lambda: not moving.locks.exists(moving.lock_of(had, customer)),
        what="the first one frees the lock of the second one",
    )
    had.apply_async((customer, "august"))
    moving.begun(f"{customer}/august")
    assert moving.at_work() == {f"{customer}/{month}" for month in ("july", "august", "ours")}
    if library == "celery_singleton":
        assert have.delay(customer, "september").id == ours.id
    else:
        with pytest.raises(Locked):
            have.delay(customer, "september")
    for month in ("july", "august", "ours"):
        moving.go(f"{customer}/{month}")
    assert ours.get(timeout=60) == f"{customer}/ours"


def test_a_task_that_retries_itself_is_refused_by_its_own_lock_of_celery_singleton(moving: Moving) -> None:
    module = moving.before("celery_singleton")
    had = module.fetch.delay("retried")
    wait_until(lambda: had.state == "RETRY")
    assert module.fetch.delay("retried").id == had.id, "nobody publishes the second attempt, and the lock stays"
    assert moving.after("celery_singleton").fetch.delay("retried").get(timeout=60) == 1


def test_a_call_for_later_and_a_revoked_one_have_a_lock_of_celery_singleton_but_no_lane(moving: Moving) -> None:
    had, have = moving.before("celery_singleton").report, moving.after("celery_singleton").report
    later = [task.apply_async(("later", "quick"), countdown=5) for task in (had, have)]
    assert had.delay("later", "quick now").id == later[0].id
    assert have.delay("later", "quick now").get(timeout=60) == "later/quick now"
    assert [one.get(timeout=60) for one in later] == ["later/quick"] * 2
    ids = [uuid4().hex for _ in later]
    moving.app.control.revoke(ids, reply=True, limit=1, timeout=10)
    for task, task_id in zip((had, have), ids, strict=True):
        with pytest.raises(TaskRevokedError):
            task.apply_async(("revoked", "june"), task_id=task_id).get(timeout=60)
    assert had.delay("revoked", "quick").id == ids[0]
    assert have.delay("revoked", "quick").get(timeout=60) == "revoked/quick"


def test_graceful_calls_are_dropped_but_a_skipped_call_has_the_result_of_the_first(moving: Moving) -> None:
    had, have = moving.before("celery_once").export, moving.after("celery_once").export
    first, ours = had.delay("graceful", "june"), have.delay("graceful ours", "june")
    moving.begun("graceful/june", "graceful ours/june")
    dropped, skipped = had.delay("graceful", "july"), have.delay("graceful ours", "july")
    assert (dropped.id, dropped.state, dropped.get()) == (None, "REJECTED", None)
    for name in ("graceful/june", "graceful ours/june"):
        moving.go(name)
    assert skipped.get(timeout=60) == ours.get(timeout=60) == "graceful ours/june"
    assert first.get(timeout=60) == "graceful/june"


def test_unlock_before_run_lets_the_next_one_run_at_once_but_defer_has_it_wait(moving: Moving) -> None:
    had, have = moving.before("celery_once").index, moving.after("celery_once").index
    for task, customer in ((had, "unlocked"), (have, "deferred")):
        task.delay(customer)
        wait_until(lambda customer=customer: moving.names().count(customer) == 1)
        task.delay(customer)
    wait_until(lambda: moving.names().count("unlocked") == 2)
    assert moving.names().count("deferred") == 1, "one works, one waits, and further calls coalesce into that"
    more = [have.delay("deferred") for _ in range(3)]
    moving.go("unlocked", "deferred")
    assert [one.get(timeout=60) for one in more] == ["deferred"] * 3
    assert moving.names("end").count("deferred") == 2


@pytest.mark.parametrize("library", ["celery_singleton", "celery_once"])
def test_between_the_two_a_task_has_both_and_old_callers_meet_new_ones(moving: Moving, library: str) -> None:
    invoice = moving.after(library).invoice
    old_app = Celery(set_as_current=False)
    old_app.conf.update(invoice.app.conf)
    base = {"celery_singleton": Singleton, "celery_once": QueueOnce}[library]
    own = {"unique_on": ["customer"], "lock_expiry": 3600, "once": {"keys": ["customer"], "timeout": 3600}}
    old = old_app.task(base=base, name=invoice.name, shared=False, **own)(invoice.run)
    first = old.delay(library, "june")
    moving.begun(f"{library}/june")
    job = moving.coordinator.job(first.id)
    assert (job.state, job.key) == (
        "running",
        f"{moving.after(library).invoice.coordinate['key'].format(customer=library)}",
    )
    for call in (old, invoice):
        if library == "celery_singleton":
            assert call.delay(library, "july").id == first.id
        else:
            with pytest.raises(AlreadyQueued):
                call.delay(library, "july")
    moving.go(f"{library}/june")
    assert first.get(timeout=60) == f"{library}/june"
    wait_until(lambda: not moving.locks.exists(moving.lock_of(invoice, library)))


def test_a_redis_lock_that_ends_lets_a_second_one_in_but_a_lane_and_a_lease_do_not(moving: Moving) -> None:
    had, have = moving.before("redis_lock").count, moving.after("redis_lock").count
    late = had.delay("a", "shelf 1", 1)
    ours = [have.delay("b", f"shelf {number}") for number in (1, 2)]
    moving.begun("a/shelf 1", "b/shelf 1")
    wait_until(lambda: not moving.locks.exists("stock/a"))
    second = had.delay("a", "shelf 2")
    moving.begun("a/shelf 2")
    assert moving.at_work() == {"a/shelf 1", "a/shelf 2", "b/shelf 1"}
    moving.go("a/shelf 1")
    with pytest.raises(redis.exceptions.LockNotOwnedError):
        late.get(timeout=60)
    assert "a/shelf 1" in moving.names("end"), "it has done all its work, and only its release was refused"
    for name in ("a/shelf 2", "b/shelf 1", "b/shelf 2"):
        moving.go(name)
    assert [one.get(timeout=60) for one in (second, *ours)] == ["a/shelf 2", "b/shelf 1", "b/shelf 2"]


def test_a_waiter_for_a_redis_lock_occupies_a_process_but_a_waiting_call_does_not(moving: Moving) -> None:
    inspect = moving.app.control.inspect(["one@test"], timeout=20, limit=1)
    for module, stock in ((moving.before("redis_lock"), "c"), (moving.after("redis_lock"), "d")):
        calls = [module.count.delay(stock, f"shelf {number}") for number in range(3)]
        wait_until(lambda stock=stock: any(name.startswith(f"{stock}/") for name in moving.names()))
        busy = 3 if stock == "c" else 1
        wait_until(lambda busy=busy: len(inspect.active()["one@test"]) == busy)
        for number in range(3):
            moving.go(f"{stock}/shelf {number}")
        for call in calls:
            call.get(timeout=60)
    assert [name for name in moving.names() if name.startswith("d/")] == [f"d/shelf {number}" for number in range(3)]


def test_a_lock_in_plain_code_keeps_jobs_out_and_a_task_may_have_both_locks(moving: Moving) -> None:
    module = moving.after("redis_lock")
    with moving.locks.lock("stock/e", timeout=30):
        both = module.count_between.delay("e", "quick")
        job = moving.coordinator.job
        wait_until(lambda: job(both.id).state == "running")
        time.sleep(0.2)
        assert not moving.names(), "it is first in its lane, and waits for the old lock"
    assert both.get(timeout=60) == "e/quick"
    done, fence = module.count_here("e", "quick")
    assert done == "e/quick"
    assert fence > job(both.id).fence


def test_of_equal_servers_one_does_an_instance_and_the_others_hear_its_end(moving: Moving) -> None:
    nightly = moving.after("oddjob").nightly
    with ThreadPoolExecutor() as servers:
        first = servers.submit(nightly, "server 1", "2026-11-22")
        moving.begun("server 1/2026-11-22")
        second = servers.submit(nightly, "server 2", "2026-11-22")
        moving.go("server 1/2026-11-22")
        told = [one.result(60) for one in (first, second)]
    told.append(nightly("server 3", "2026-11-22"))
    assert [one["won"] for one in told] == [True, False, False]
    assert {(one["winner"]["identifier"], one["state"], one["result"]) for one in told} == {
        ("server 1", "complete", "server 1/2026-11-22")
    }
    assert moving.names() == ["server 1/2026-11-22"]


def test_jobs_of_a_key_follow_each_other_others_do_not_wait_and_what_fails_is_rolled_back(moving: Moving) -> None:
    enqueue, wait = moving.after("opendaylight").enqueue, moving.coordinator.wait
    taken, after, aside = enqueue("port-1", "13"), enqueue("port-1", "12"), enqueue("port-2", "12")
    moving.begun("port-2/12")
    assert "port-1/12" not in moving.names()
    moving.go("port-1/13", "port-1/13 is unbound", "port-1/12", "port-2/12")
    assert [wait(one.id, 20).state for one in (taken, after, aside)] == ["rolled_back", "succeeded", "succeeded"]
    assert [name for name in moving.names() if name != "port-2/12"] == [
        *["port-1/13"] * 3, "port-1/13 is unbound", "port-1/12"]  # fmt: skip


def test_whole_chains_follow_each_other_over_a_resource_and_sorted_orders_by_their_names(moving: Moving) -> None:
    module = moving.after("jobscheduler")
    calls = [module.load("quick 1"), module.report(), module.load("quick 2")]
    moving.begun("summary")
    assert moving.names() == ["quick 1 fetched", "quick 1 stored", "summary"]
    moving.go("summary")
    assert [moving.coordinator.wait(one.id, 60).state for one in calls] == ["succeeded"] * 3
    module.sorter = moving.coordinator.sorter("stock orders", idle_timeout=3)
    orders = [module.arrived(order) for order in ("quick c", "quick a", "quick b")]
    assert [moving.coordinator.wait(one.id, 60).state for one in orders] == ["succeeded"] * 3
    assert [name[6] for name in moving.names()[5:]] == ["a", "a", "b", "b", "c", "c"]


def test_requests_during_a_synchronization_make_one_more_and_ticks_none(moving: Moving) -> None:
    module, member = moving.after("dataone"), "urn:node:KNB"
    first = module.refresh(member)
    moving.begun(f"{member} all")
    more = [module.refresh(member, pid) for pid in ("a", "b", "a")]
    assert [one.outcome for one in more] == ["queued", "coalesced", "coalesced"]
    entries = {entry.args[0]: entry for entry in module.schedules()[1]}
    tick, quick = entries[member], module.synchronize.s(member)
    assert moving.coordinator.submit(tick.key, quick, when_busy=tick.when_busy).outcome == "skipped"
    moving.go(f"{member} all", f"{member} a,b")
    assert [moving.coordinator.wait(one.id, 60).result for one in (first, *more)] == [None] + [["a", "b"]] * 3
    assert moving.names() == [f"{member} all", f"{member} a,b"]
    due = entries["urn:node:ADC"].planned().next(datetime(2026, 11, 23, tzinfo=UTC))
    assert due == datetime(2026, 11, 29, 3, 42, tzinfo=UTC), "a Sunday"


def test_a_component_works_once_on_each_item_that_has_its_events(moving: Moving) -> None:
    module = moving.after("newspaper")
    items = module.components.items
    deliver(items, "quick-B1-RT1", does="/data")
    deliver(items, "quick-B2-RT1")
    first, second = (run(module, "Structure_Checker").result for _ in range(2))
    assert [(one["item"], one["outcome"]) for one in first] == [
        ("quick-B1-RT1", "succeeded"), ("quick-B2-RT1", "failed")]  # fmt: skip
    assert second["outcome"] == "nothing to do"
    assert kinds(event(items, "quick-B2-RT1", "Structure_Checked")) == ["filestructure"]
    for name in ("Structure_Checker", "component/*"):
        moving.coordinator.drop_quota(name)
    moving.coordinator.store._client.delete(moving.coordinator.store.key("declared"))
