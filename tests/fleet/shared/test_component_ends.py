"""However a child of a component ends: one event says so, nothing of it stays locked, and people see it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import psutil
import pytest

from coordinator.core.quotas.client import QuotaClient
from tasks.batches import Items, NewEvent
from tasks.components import look, poll
from tests.fleet.shared.components import deliver, event, kinds, run
from tests.harness.command import Call
from tests.harness.fleet import Fleet
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

NODE = Node("press", 4, settings={"lock_ttl": 5, "sweep": 0.1, "heartbeat": 0.5})


@pytest.fixture(scope="module")
def environ() -> dict[str, str]:
    return {"TEST_LIMIT": "8"}


def begun(press: Any, name: str = "Checker") -> str:
    """The id of a run that goes on."""
    return str(poll.submit_run(press.components, press.components[name]).id)


def locked(press: Any) -> list[str]:
    store = press.coordinator.store
    return [name.decode() for name in store._client.scan_iter(store.key("lock", "*"), 1000)]


@contextmanager
def nobody_writes(items: Items) -> Iterator[None]:
    """The store waits with each change meanwhile."""
    with items.engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield
        connection.exec_driver_sql("ROLLBACK")


def test_an_attempt_that_ends_without_a_word_ends_as_a_failed_event(fleet: Fleet, press: Any, items: Items) -> None:
    deliver(items, "B1-RT1", does="kill")
    deliver(items, "B2-RT1", does="infrastructure")
    deliver(items, "B3-RT1", does="sleep 30")
    deliver(items, "B4-RT1", does="exit")
    job = run(press)
    assert (job.state, job.error["type"]) == ("failed", "SubResultFailed")
    (lost,) = event(items, "B1-RT1").report.failures
    assert (lost.type, "on one@test is gone" in lost.description) == ("lost", True)
    assert event(items, "B1-RT1").started.timestamp() <= fleet.stamps("B1-RT1", "begin")[0].at / 1e6
    assert len(fleet.stamps("B1-RT1", "begin")) == 2, "max_losses of them, and once more"
    assert kinds(event(items, "B2-RT1")) == ["infrastructure"]
    (late,) = event(items, "B3-RT1").report.failures
    assert (late.type, late.description) == ("timeout", "went past its time_limit on one@test")
    ran = event(items, "B3-RT1").ended - event(items, "B3-RT1").started
    assert ran.total_seconds() >= 8, "from its begin, not from that of its rollback"
    (exited,) = event(items, "B4-RT1").report.failures
    assert (exited.type, exited.description) == ("exception", "SystemExit: 3")
    assert not press.coordinator.lanes("Checker/")
    assert not locked(press), "no lock outlives its job"


def test_an_infrastructure_error_is_tried_again_ever_later_counted_and_then_recorded(
    fleet: Fleet, press: Any, items: Items, command: Call
) -> None:
    deliver(items, "B1-RT1")
    assert run(press, "Fetcher").state == "failed"
    first, second, third = (stamp.at / 1e6 for stamp in fleet.stamps("B1-RT1", "begin"))
    assert second - first >= 0.2
    assert third - second >= 0.5
    assert press.coordinator.counts()["retries"] == 2
    (failure,) = event(items, "B1-RT1", "Fetched").report.failures
    assert (failure.type, failure.description) == ("infrastructure", "the archive is away")
    shown = command("items", "show", "B1-RT1").output
    assert "infrastructure: the archive is away (Fetcher)\n    Traceback" in shown
    assert not locked(press)


def test_a_soft_time_limit_is_a_failure_of_the_type_timeout(press: Any, items: Items) -> None:
    deliver(items, "B1-RT1", does="30")
    deliver(items, "B2-RT1", does="0")
    told = {one["item"]: one["outcome"] for one in run(press, "Scanner").result}
    assert told == {"B1-RT1": "failed", "B2-RT1": "succeeded"}
    (failure,) = event(items, "B1-RT1", "Scanned").report.failures
    assert (failure.type, failure.description) == ("timeout", "it took longer than 2.0 s")
    assert not locked(press)


def test_a_child_that_an_operator_cancels_at_work_is_recorded_and_one_that_waits_is_not(
    fleet: Fleet, press: Any, items: Items
) -> None:
    names = [f"B{number}-RT1" for number in range(1, 5)]
    deliver(items, *names, does="wait")
    job = begun(press)
    fleet.begun(*names[:3])
    wait_until(lambda: press.coordinator.job(job).state == "parked")
    press.coordinator.cancel(f"{job}/{names[3]}", by="ann", why="later")
    press.coordinator.cancel(f"{job}/{names[0]}", by="ann", why="the disk is needed")
    for name in names[1:3]:
        fleet.go(name)
    assert press.coordinator.wait(job, 60).state == "failed"
    (failure,) = event(items, names[0]).report.failures
    assert (failure.type, failure.description) == ("cancelled", "ann cancelled it: the disk is needed")
    assert all(event(items, name).success for name in names[1:3])
    assert [one.type for one in items.events(names[3])] == ["Data_Received"]
    assert not locked(press)
    fleet.go(names[3])
    assert [one["item"] for one in run(press).result] == [names[3]], "it asks again"


@pytest.mark.parametrize("success", [True, False])
def test_a_child_whose_process_died_after_its_event_says_what_came_of_the_item(
    press: Any, items: Items, success: bool
) -> None:
    deliver(items, "B1-RT1", "B2-RT1")
    now = datetime.now(UTC)
    for item, job in (("B1-RT1", "again/B1-RT1"), ("B2-RT1", "another/B2-RT1")):
        items.begin("Checker", item, fence=1)
        items.append(NewEvent(item, "Checked", success, "Checker", "1.0", f"{job}#1", 1, 1, now, now))
    for item in ("B1-RT1", "B2-RT1"):
        child = press.components.signature("tasks.components.work", "Checker", item)
        press.coordinator.submit(f"Checker/{item}", child, job_id=f"again/{item}")
    assert press.coordinator.wait("again/B1-RT1", 60).result["outcome"] == ("succeeded" if success else "failed")
    assert press.coordinator.wait("again/B2-RT1", 60).result["outcome"] == "not wanted", "somebody else did it"


def test_a_run_whose_process_is_killed_before_it_parks_finds_its_children(
    fleet: Fleet, press: Any, items: Items
) -> None:
    names = ["B1-RT1", "B2-RT1"]  # as many as its line may have
    deliver(items, *names)
    store = press.coordinator.store
    with nobody_writes(items):  # so the run cannot note that it was, and does not end
        job = begun(press, "Binder")
        while len(press.coordinator.lanes("Binder/")) < 2:  # it may hold its lock still
            assert press.coordinator.job(job).state in ("ready", "running")
        psutil.Process(int(store._client.hget(store.key("job", job), "runner").split(b".")[0])).kill()
    fleet.begun(names[0])
    wait_until(lambda: press.coordinator.job(job).state == "parked", what=fleet.logs)
    assert press.coordinator.job(job).losses == 1
    for name in names:
        fleet.go(name)
    assert [one["item"] for one in press.coordinator.wait(job, 60).result] == names
    assert sorted(stamp.name for stamp in fleet.stamps(what="begin")) == names, "nothing was begun twice"


def test_a_component_has_its_quota_again_after_redis_lost_it_and_an_operators_stays(press: Any, items: Items) -> None:
    store = press.coordinator.store

    def units() -> int | None:
        (quota,) = QuotaClient(store).read_many(["Checker"])
        return quota.concurrency

    run(press)
    assert units() == 3
    for number in (5, 1):
        press.coordinator.quota("Checker", concurrency=number, why="a large machine")
        run(press)
        assert units() == number, "an operator's stays"
    press.coordinator.drop_quota("Checker")
    run(press)
    assert units() == 3, "children cannot be without it"
    press.coordinator.quota("Checker", concurrency=5)
    store._client.delete(store.key("declared"), store.key("quota", "Checker"))
    assert units() is None
    run(press)
    assert units() == 3
    store._client.delete(store.key("declared"), store.key("quota", "Checker"))
    press.coordinator.quota("Checker", concurrency=2, by="ann", why="until the others are there")
    run(press)
    assert units() == 2


@pytest.mark.parametrize("does", ["", "raise", "fail 1", "not-yet"])
def test_nothing_stays_locked_where_a_child_says_how_it_ended(press: Any, items: Items, does: str) -> None:
    deliver(items, "B1-RT1", does=does)
    run(press)
    assert look.working(press.components, press.components["Checker"]) == []
    assert not locked(press)
