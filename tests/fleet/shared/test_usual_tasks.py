"""What a task may do as any Celery task does, where it runs as a job."""

from typing import Any

import pytest
from celery import chain
from celery.result import AsyncResult

from coordinator import Coordinator, InvalidJob, JobFailed, WaitTimeout
from tests.fleet.mishaps import cause, marks
from tests.harness.fleet import ANSWERED, Fleet
from tests.harness.standing import Node

MODULE = "tests.harness.apps.usual"
NODE = Node("shop", 2, ("-I", MODULE), {"sweep": 0.1, "retry_delay": 0.01})


@pytest.fixture
def usual(fleet: Fleet) -> Any:
    return fleet.tasks(MODULE)


def test_the_request_of_a_job_is_no_eager_one(fleet: Fleet, usual: Any) -> None:
    job = fleet.coordinator.submit("k", usual.seen.s())
    assert fleet.coordinator.wait(job.id, 60).result == [False, False, 0]


def test_a_result_that_a_task_has_stored_itself_stays(fleet: Fleet, usual: Any) -> None:
    made = fleet.coordinator.submit("k", usual.tells_itself.s())
    assert fleet.coordinator.wait(made.id, 60).state == "succeeded"
    result = AsyncResult(made.id, app=fleet.shop.app)
    assert (result.state, str(result.result)) == ("FAILURE", "its own")


def test_a_task_that_replaces_a_job_keeps_its_lane_and_gives_it_its_result(fleet: Fleet, usual: Any) -> None:
    wanted = {"task": 3, "chain": 13, "group": [3, 7], "chord": 10, "twice": 3}
    submit, wait = fleet.coordinator.submit, fleet.coordinator.wait
    jobs = {kind: submit(kind, usual.replaces.s(kind), job_id=kind) for kind in wanted}
    ended = {kind: wait(job.id, 30) for kind, job in jobs.items()}
    assert {kind: (job.state, job.result) for kind, job in ended.items()} == {
        kind: ("succeeded", result) for kind, result in wanted.items()
    }
    step = submit("chain", chain(fleet.shop.add.s(1, 2), usual.replaces.si("before", 5), fleet.shop.add.s(1000)))
    assert wait(step.id, 30).result == 1105
    first = submit("k", usual.replaces.s("fails"))
    after = submit("k", fleet.shop.work.s("after"))
    assert wait(after.id, 30).state == "succeeded"
    failed = fleet.coordinator.job(first.id)
    assert (failed.state, cause(failed)) == ("failed", "ValueError")
    assert marks(fleet, "replaced", "after") == ["replaced begin", "after begin", "after end"]


def test_a_replacement_that_stores_no_result_and_a_retry_that_raises_nothing_are_refused_by_name(
    fleet: Fleet, usual: Any
) -> None:
    silent = fleet.coordinator.submit("a", usual.replaces.s("silent"))
    going_on = fleet.coordinator.submit("b", usual.goes_on.s("once"))
    found = [fleet.coordinator.wait(job.id, 60) for job in (silent, going_on)]
    assert [(job.state, cause(job)) for job in found] == [("failed", "NoRetry")] * 2
    assert [(job.error or {})["message"].partition(": ")[2] for job in found] == [
        "its task stores no result, so its end could not be waited for",
        "self.retry(throw=False) in a job, which is retried only if the task raises",
    ]
    assert len(fleet.stamps("once", "begin")) == 1


def test_a_limit_from_the_annotations_of_the_app_ends_a_job(fleet: Fleet, usual: Any) -> None:
    first = fleet.coordinator.submit("k", usual.hurried.s("hurried"))
    after = fleet.coordinator.submit("k", usual.hurried.s("unhurried").set(time_limit=50))
    found = fleet.coordinator.wait(first.id, 60)
    assert (found.state, cause(found)) == ("failed", "TimedOut")
    fleet.begun("unhurried")
    fleet.coordinator.cancel(after.id, why="enough")
    assert fleet.coordinator.wait(after.id, 60).state == "cancelled"


def test_the_remote_control_says_that_limits_change_nothing_for_jobs(fleet: Fleet, usual: Any) -> None:
    control, name = fleet.shop.app.control, fleet.shop.add.name
    replies = [control.time_limit(name, 9, 8, **ANSWERED), control.rate_limit(name, "9/m", **ANSWERED)]
    assert [next(iter(reply[0].values()))["ok"].partition(", ")[2] for reply in replies] == [
        "for messages; jobs keep the limits of their submit",
        "for messages; its jobs have no rate: name a quota that they use",
    ]
    control.rate_limit(name, 0, **ANSWERED)


def test_a_submission_gives_the_result_and_raises_the_tasks_own_error(fleet: Fleet, usual: Any) -> None:
    submit, shop = fleet.coordinator.submit, fleet.shop
    good, bad = submit("a", shop.add.s(1, 2)), submit("b", shop.fail.s("no"))
    assert good.get(timeout=60) == 3
    with pytest.raises(ValueError, match="no"):
        bad.get(timeout=60)
    (odd,) = fleet.coordinator.submit_many([("c", usual.odd.s())])
    with pytest.raises(WaitTimeout):
        odd.get(0)
    fleet.coordinator.cancel(odd.id, why="enough")
    with pytest.raises(JobFailed, match="is cancelled: enough"):
        odd.get(timeout=60)


def test_a_plain_client_learns_from_a_worker_where_its_tasks_go(fleet: Fleet, usual: Any) -> None:
    plain = Coordinator(url=fleet.environ["COORDINATOR_URL"], prefix=fleet.prefix, timeout=10)
    (node,) = plain.nodes()
    assert (node.queue, node.routes) == ("celery", {usual.odd.name: "odd"})
    assert plain.submit("k", {"task": fleet.shop.add.name, "args": [1, 2]}).get(timeout=60) == 3
    with pytest.raises(JobFailed, match="is failed: no"):
        plain.submit("k", {"task": fleet.shop.fail.name, "args": ["no"]}).get(timeout=60)
    with pytest.raises(InvalidJob, match=r"did you mean 'tests\.harness\.apps\.shop\.add'"):
        plain.submit("k", {"task": "tests.harness.apps.shop.ad"})
    plain.store.close()


def test_a_soft_limit_holds_where_the_body_uses_the_timer_of_its_process(fleet: Fleet, usual: Any) -> None:
    job = fleet.coordinator.submit("k", usual.alarmed.s().set(soft_time_limit=2))
    assert fleet.coordinator.wait(job.id, 60).result == "soft limit seen"
