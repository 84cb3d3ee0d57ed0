"""One run does all united requests, and each requester learns the result of its own."""

import json

import pytest

from examples.demo.member_server import Request
from tasks.harvest import sync_request
from tasks.harvest.outcome import STORED, bounded
from tasks.harvest.sync_request import COMPLETE, SyncRequest
from tasks.member_node.client import Failing, MemberRefused
from tests.tasks.conftest import Federation, at
from tests.tasks.faults import faulty, says

OLD, NOWHERE = "doi:10.5/000003", "doi:10.5/nowhere"


@pytest.fixture
def harvested(federation: Federation) -> Federation:
    """Twenty objects, and one with a date so old that no increment lists it."""
    federation.server.fill(20, first=at(0))
    federation.harvest()
    federation.server.put("old", at(-99_999))
    return federation


@pytest.mark.parametrize(
    ("submits", "meant"),
    [
        ([sync_request.texts()], SyncRequest()),
        ([sync_request.texts(["b", "a"])], SyncRequest(None, ("a", "b"))),
        ([sync_request.texts(), sync_request.texts(["pid increment"])], SyncRequest("increment", ("pid increment",))),
        (
            [sync_request.texts(), sync_request.texts(["a"]), sync_request.texts(complete=True)],
            SyncRequest("complete", ("a",)),
        ),
    ],
)
def test_what_several_submits_ask_for_is_understood_together(submits: list[list[str]], meant: SyncRequest) -> None:
    assert SyncRequest.of([text for texts in submits for text in texts]) == meant


@pytest.mark.parametrize("kind", ["increment", "complete"])
def test_a_run_does_its_pass_and_fetches_the_pids_whatever_their_date(harvested: Federation, kind: str) -> None:
    harvested.server.put("new", at(60))
    seen = faulty(harvested.server, says(500))
    outcome = harvested.harvest(request=SyncRequest(kind, ("old", OLD)))  # type: ignore[arg-type]
    assert (outcome.outcome, outcome.pids) == ("succeeded", {"old": STORED, OLD: STORED})
    assert (outcome.stored, outcome.last_harvested) == (3, at(60))
    assert (seen[f"meta/{OLD}"], seen["meta/old"], seen["meta/new"]) == (1, 1, 1)
    assert harvested.harvested == harvested.server.pids


def test_a_pid_that_fails_is_told_in_the_members_words_and_is_no_failure_of_the_increment(
    harvested: Federation,
) -> None:
    outcome = harvested.harvest(request=SyncRequest(pids=(NOWHERE, "old")))
    assert outcome.pids["old"] == STORED
    assert f"answers 404 NotFound: no object {NOWHERE}" in outcome.pids[NOWHERE]
    assert harvested.catalog.summary(harvested.member_id)[1:4:2] == (1, "succeeded")
    [failed] = harvested.catalog.failed(harvested.member_id)
    later = harvested.harvest(clock=lambda: failed.next_try)
    assert (later.outcome, later.failed) == ("succeeded", 1)


def test_of_two_pids_one_may_fail_and_where_none_can_be_had_the_run_fails(harvested: Federation) -> None:
    outcome = harvested.harvest(pids=[NOWHERE, "old"])
    assert (outcome.outcome, outcome.stored, outcome.failed) == ("succeeded", 1, 1)
    assert set(outcome.pids) == {NOWHERE, "old"}
    with pytest.raises(MemberRefused, match=NOWHERE):
        harvested.harvest(pids=[NOWHERE, NOWHERE + "/2"])


def test_a_pid_that_failed_is_fetched_though_its_next_try_is_not_due(federation: Federation) -> None:
    federation.server.fill(5, first=at(0))
    faulty(federation.server, says(500), meta={OLD})
    federation.harvest()
    federation.server.hook = lambda request: None
    assert federation.harvest().postponed == 1
    assert federation.harvest(request=SyncRequest(pids=(OLD,))).pids == {OLD: STORED}
    assert federation.catalog.failed(federation.member_id) == []


def test_an_increment_that_fails_takes_nothing_from_the_pids_before_it(harvested: Federation) -> None:
    faulty(harvested.server, says(500), listings=1)
    with pytest.raises(Failing):
        harvested.harvest(request=SyncRequest(pids=("old",)))
    assert "old" in harvested.harvested
    assert harvested.catalog.summary(harvested.member_id).outcome == "failed"


def test_a_lease_that_is_lost_between_the_pids_and_the_pass_ends_the_run(harvested: Federation) -> None:
    class LeaseLost(Exception):
        pass

    listed: list[Request] = []

    def check() -> None:
        if listed:
            raise LeaseLost

    harvested.server.put("new", at(60))
    harvested.server.hook = lambda request: listed.append(request) if request.path[0] == "object" else None
    with pytest.raises(LeaseLost):
        harvested.harvest(request=SyncRequest(pids=("old",)), check=check)
    assert harvested.harvested == harvested.server.pids - {"new"}
    assert harvested.member.last_harvested == at(19)


def test_pids_that_hang_one_after_the_other_do_not_stop_the_increment(harvested: Federation) -> None:
    federation = harvested.with_settings(give_up_after=2, tries=1)
    hanging = {f"hanging/{number}" for number in range(99)}
    faulty(harvested.server, says(503), meta=hanging)
    harvested.server.put("new", at(60))
    outcome = federation.harvest(request=SyncRequest(pids=tuple(hanging)))
    assert (outcome.outcome, outcome.last_harvested, set(outcome.pids)) == ("succeeded", at(60), hanging)
    assert STORED not in outcome.pids.values()
    assert {one.pid for one in harvested.catalog.failed(harvested.member_id)} == hanging  # none is forgotten


def test_the_result_has_a_bound_and_the_failed_ones_first() -> None:
    ends = {f"ö{number:05d}" * 40: STORED for number in range(10_000)} | {"bad": "no" * 1000}
    told = bounded(ends)
    assert told["bad"] == "no" * 150
    assert len(told) > 100
    assert len(json.dumps(told, ensure_ascii=False).encode()) < 80 * 1024
    assert SyncRequest.of([COMPLETE]).kind == "complete"
