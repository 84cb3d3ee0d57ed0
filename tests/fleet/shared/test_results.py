"""Results of keyed jobs as Celery's own calls hear of them: `get(on_message=…)`, sets of results, chords."""

from typing import Any

import pytest
from celery import chain, chord
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult, ResultSet

from coordinator.core.jobs.submission import Submission
from tests.harness.fleet import Fleet
from tests.harness.standing import Node

NODE = Node("depot", 3)


@pytest.fixture
def depot(fleet: Fleet) -> Any:
    """The module of the app, of which there is one node."""
    return fleet.depot


class Ear:
    """What `on_message` is called with; `statuses`: by task id."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []

    def __call__(self, meta: dict[str, Any]) -> None:
        self.heard.append(meta)

    @property
    def statuses(self) -> list[tuple[str, str]]:
        return sorted((meta["task_id"], meta["status"]) for meta in self.heard)

    def result(self, job_id: str) -> Any:
        (found,) = (meta["result"] for meta in self.heard if meta["task_id"] == job_id)
        return found


def handle(depot: Any, told: Submission) -> AsyncResult:
    return depot.app.AsyncResult(told.id)


def test_who_waits_for_a_job_hears_its_message_once_with_the_result(fleet: Fleet, depot: Any) -> None:
    told, ear = depot.coordinator.submit("k", depot.held.s("slow")), Ear()
    found = handle(depot, told).get(timeout=20, on_message=ear, on_interval=lambda: fleet.go("slow"))
    assert (found, ear.statuses, ear.result(told.id)) == ("slow", [(told.id, "SUCCESS")], "slow")


def test_who_waits_for_a_job_that_fails_hears_why(fleet: Fleet, depot: Any) -> None:
    told, ear = depot.coordinator.submit("k", depot.held.s("bad", fail=True), max_attempts=2, retry_delay=0), Ear()
    fleet.go("bad")
    with pytest.raises(ValueError, match="bad"):
        handle(depot, told).get(timeout=20, on_message=ear, on_interval=lambda: fleet.go("bad"))
    assert ear.statuses == [(told.id, "FAILURE")]
    assert isinstance(ear.result(told.id), ValueError)


def test_who_waits_for_a_set_hears_of_each_job_however_it_ends(fleet: Fleet, depot: Any) -> None:
    submit = depot.coordinator.submit
    depot.coordinator.pause("cancelled")
    jobs = {
        "SUCCESS": submit("k", depot.held.s("gate")),
        "SUCCESS in line": submit("k", depot.add.s(1, 2)),
        "SUCCESS of a chain": submit("k", chain(depot.add.s(1, 2), depot.add.s(10))),
        "SUCCESS of a chord": submit("k", chord([depot.add.s(1, 2), depot.add.s(3, 4)], depot.total.s())),
        "SUCCESS of sub-results": submit("k", depot.sub_job.s("other", "child")),
        "FAILURE": submit("k", depot.fail.s("no")),
        "REVOKED": submit("cancelled", depot.work.s("never")),
    }
    ear, asked = Ear(), []

    def begin() -> None:
        if not asked:
            asked.append(depot.coordinator.cancel(jobs["REVOKED"].id))
            fleet.go("gate")

    handles = ResultSet([handle(depot, told) for told in jobs.values()], app=depot.app)
    found = handles.get(timeout=40, propagate=False, on_message=ear, on_interval=begin)
    assert found[:5] == ["gate", 3, 13, 10, ["child"]]
    assert ear.statuses == sorted((told.id, how.split()[0]) for how, told in jobs.items())
    assert ear.result(jobs["SUCCESS of a chord"].id) == 10
    depot.coordinator.resume("cancelled")


def test_chords_on_one_key_run_one_after_the_other_and_each_gives_its_body_the_results(
    fleet: Fleet, depot: Any
) -> None:
    orders = [
        chord([depot.step.s([], f"{number}{part}", 0.05) for part in "ab"], depot.joined.s()) for number in range(4)
    ]
    told = [depot.coordinator.submit("k", order) for order in orders]
    found = [handle(depot, one).get(timeout=60) for one in told]
    assert found == [[f"{number}a", f"{number}b"] for number in range(4)]
    begun = [stamp.name[0] for stamp in fleet.stamps(what="begin")]
    assert begun == sorted(begun), "no part of a chord begins before all of the one before has ended"


def test_the_parts_of_a_chord_may_be_jobs_of_other_lanes(fleet: Fleet, depot: Any) -> None:
    """A step returns the handles of the jobs that it has submitted; the next step is given their results, in order."""
    keys = ["a", "b", "a", "c"]
    jobs = [
        depot.coordinator.submit("k", chain(depot.sub_jobs.s(keys, number), depot.joined.s())) for number in range(3)
    ]
    found = [handle(depot, one).get(timeout=60) for one in jobs]
    assert found == [[f"{number}{place}" for place in range(4)] for number in range(3)]
    assert sorted(stamp.name for stamp in fleet.stamps(what="begin")) == [name for names in found for name in names]


def test_a_chord_of_which_a_keyed_part_fails_fails_and_its_body_is_not_called(fleet: Fleet, depot: Any) -> None:
    keys, ear = ["a", "b", "bad", "c"], Ear()
    told = depot.coordinator.submit("k", chain(depot.sub_jobs.s(keys, 0), depot.work.si("body")))
    with pytest.raises(Exception, match="bad"):
        handle(depot, told).get(timeout=40, on_message=ear)
    assert fleet.stamps("body") == []
    assert depot.coordinator.job(told.id).error["type"] == "SubResultFailed"


def test_who_submitted_what_coalesced_into_a_job_hears_of_its_end(fleet: Fleet, depot: Any) -> None:
    first = depot.coordinator.submit("k", depot.held.s("gate"))
    coalescing = [depot.coordinator.submit("k", depot.work.s("one"), when_busy="defer") for _ in range(3)]
    assert [one.outcome for one in coalescing] == ["queued", "coalesced", "coalesced"]
    handles, ear = ResultSet([handle(depot, one) for one in (first, *coalescing)], app=depot.app), Ear()
    found = handles.get(timeout=20, on_message=ear, on_interval=lambda: fleet.go("gate"))
    assert found == ["gate", "one", "one", "one"]
    assert ear.statuses == sorted((one.id, "SUCCESS") for one in (first, *coalescing))
    assert len(fleet.stamps("one", "begin")) == 1


def test_who_submitted_what_coalesced_into_a_job_hears_that_it_was_cancelled(fleet: Fleet, depot: Any) -> None:
    """No runner had it: maintenance sends its end."""
    depot.coordinator.pause("k")
    coalescing = [depot.coordinator.submit("k", depot.work.s("never"), when_busy="defer") for _ in range(2)]
    depot.coordinator.cancel(coalescing[0].id, by="anna")
    for one in coalescing:
        with pytest.raises(TaskRevokedError):
            handle(depot, one).get(timeout=60)
    depot.coordinator.resume("k")
