"""Celery's remote control and result backend know of jobs as they know of tasks."""

from datetime import UTC, datetime
from typing import Any

import pytest
from celery import chain
from celery.result import AsyncResult

from tests.harness.fleet import ANSWERED, Fleet
from tests.harness.standing import Node
from tests.harness.waiting import wait_until

NODE = Node("depot", 3, settings={"sweep": 0.1})


@pytest.fixture
def depot(fleet: Fleet) -> Any:
    """The module of the app, of which there is one node."""
    return fleet.depot


@pytest.mark.broker
def test_a_revoke_ends_a_job_that_has_not_begun_and_leaves_the_one_at_work(fleet: Fleet, depot: Any) -> None:
    submit, wait = depot.coordinator.submit, depot.coordinator.wait
    at_work = submit("k", depot.held.s("at work")).id
    fleet.begun("at work")
    behind = submit("k", depot.work.s("behind")).id
    later = depot.work.apply_async(("later",), countdown=5)
    depot.app.control.revoke([at_work, behind, later.id], **ANSWERED)
    assert wait(behind, 20).state == "cancelled"
    for revoked in (AsyncResult(behind, app=depot.app), later):  # Celery below 5.6 tells it when the task would begin
        wait_until(lambda one=revoked: one.state == "REVOKED", what=fleet.logs)
    assert depot.coordinator.job(at_work).state == "running"
    assert AsyncResult(at_work, app=depot.app).state == "PENDING"
    fleet.go("at work")
    assert wait(at_work, 20).result == "at work"
    assert AsyncResult(at_work, app=depot.app).state == "SUCCESS"
    assert not fleet.stamps("behind")


@pytest.mark.parametrize("signal", [None, "SIGKILL", "SIGTERM"])  # Flower names one
def test_a_revoke_that_terminates_ends_the_job_at_work(fleet: Fleet, depot: Any, signal: str | None) -> None:
    made = depot.coordinator.submit("k", depot.held.s("stopped"))
    fleet.begun("stopped")
    if signal is None:
        AsyncResult(made.id, app=depot.app).revoke(terminate=True)
    else:
        depot.app.control.terminate(made.id, signal=signal)
    assert depot.coordinator.wait(made.id, 60).state == "cancelled"
    assert not fleet.stamps("stopped", "end")


@pytest.mark.broker
def test_inspect_shows_jobs_as_it_shows_tasks_and_no_runner(fleet: Fleet, depot: Any) -> None:
    submit = depot.coordinator.submit
    failing = submit("f", depot.fail.s("f", seconds=0), max_attempts=2, retry_delay=90).id
    wait_until(lambda: depot.coordinator.job(failing).state == "retrying")
    later = submit("l", depot.work.s("l", seconds=1).set(countdown=60)).id
    elsewhere = fleet.coordinator.submit("o", fleet.shop.add.s(1, 2).set(countdown=60)).id  # another app's
    chained = submit("a", chain(depot.work.s("a"), depot.held.s(fail=False))).id
    single, plain = submit("b", depot.held.s("b")).id, depot.held.delay("plain")
    fleet.begun("a", "b", "plain")
    wait_until(lambda: depot.coordinator.job(chained).step == 1)
    ready = submit("r", depot.add.s(1, y=2)).id
    inspect = depot.app.control.inspect(timeout=20, limit=1)

    def told(found: list[Any]) -> dict[str, Any]:
        return {info["id"]: (info["name"], info["args"], info["kwargs"]) for info in found}

    held, work, fail = depot.held.name, depot.work.name, depot.fail.name
    (active,) = inspect.active().values()
    at_work = {chained: (held, ["a"], {"fail": False}), single: (held, ["b"], {}), plain.id: (held, ["plain"], {})}
    assert told(active) == at_work
    assert all(info["worker_pid"] and info["time_start"] for info in active)
    (shown,) = inspect.active(safe=True).values()
    assert told(shown)[chained] == (held, "('a',)", "{'fail': False}")
    (reserved,) = inspect.reserved().values()
    assert told(reserved) == {ready: (depot.add.name, [1], {"y": 2})}
    (scheduled,) = inspect.scheduled().values()
    jobs = told([one["request"] for one in scheduled if one["request"]["hostname"] is None])
    assert jobs == {later: (work, ["l"], {"seconds": 1}), failing: (fail, ["f"], {"seconds": 0})}
    assert all(datetime.now(UTC) < datetime.fromisoformat(one["eta"]) for one in scheduled)
    (asked,) = inspect.query_task(chained, plain.id, later, ready, "nobody").values()
    states = {chained: "active", plain.id: "active", later: "scheduled", ready: "reserved"}
    assert {one: state for one, (state, _) in asked.items()} == states
    for name in ("a", "b", "plain"):
        fleet.go(name)
    assert [depot.coordinator.wait(one, 60).state for one in (chained, single, ready)] == ["succeeded"] * 3
    assert plain.get(timeout=60) == "plain"
    for one in (later, failing, elsewhere):
        depot.coordinator.cancel(one)


def test_a_job_is_started_while_it_runs_where_the_app_tracks_that(fleet: Fleet, depot: Any) -> None:
    made = depot.coordinator.submit("k", depot.tracked.s("tracked"))
    result = AsyncResult(made.id, app=depot.app)
    wait_until(lambda: result.state == "STARTED")
    assert result.info["hostname"] == "one@test"
    fleet.go("tracked")
    assert result.get(timeout=60) == "tracked"


def test_the_result_is_in_the_backend_once_wait_returns(fleet: Fleet, depot: Any) -> None:
    for number in range(20):
        made = depot.coordinator.submit("k", depot.add.s(number, 1))
        depot.coordinator.wait(made.id, 60)
        assert AsyncResult(made.id, app=depot.app).result == number + 1


def test_a_cancelled_job_is_told_as_that_and_no_alarm_is_raised(fleet: Fleet, depot: Any) -> None:
    made = depot.coordinator.submit("k", depot.held.s("stopped"))
    fleet.begun("stopped")
    depot.coordinator.cancel(made.id)
    assert depot.coordinator.wait(made.id, 60).state == "cancelled"
    wait_until(lambda: "the process of a runner has ended" in fleet.logs(), what=fleet.logs)
    assert "its process was stopped: cancelled" in fleet.logs()
    assert not [word for word in ("time_limit", "Traceback", "WorkerLostError(") if word in fleet.logs()]
