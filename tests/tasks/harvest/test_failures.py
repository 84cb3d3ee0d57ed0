import threading
import time
from collections import Counter

import pytest

from examples.demo.member_server import MemberServer, Reply, Request, failure
from tasks.catalog.catalog import Failed, ObjectToFetch, Superseded
from tasks.harvest.fetcher import Stalled
from tasks.member_node.client import NOT_THERE, MemberNodeError, MemberRefused, MemberTimedOut
from tests.tasks.conftest import IN_BOTH, Federation, OneMember, at
from tests.tasks.faults import FAULTS, NAMES, Fault, faulty, says


class LeaseLost(Exception):
    pass


@pytest.mark.parametrize(("fault", "kind"), FAULTS, ids=NAMES)
def test_a_page_that_fails_keeps_the_pages_before_it(
    federation: Federation, fault: Fault, kind: type[MemberNodeError]
) -> None:
    federation.server.fill(450, first=at(0))
    federation = federation.impatient() if kind is MemberTimedOut else federation
    faulty(federation.server, fault, listings=3)
    with pytest.raises(kind) as failed:
        federation.harvest()
    assert failed.value.member == federation.member_id
    assert len(federation.harvested) == 199  # the last of a page comes again with the next
    assert federation.member.last_harvested is None
    summary = federation.catalog.summary(federation.member_id)
    assert (summary.outcome, summary.error) == ("failed", str(failed.value))
    asked: list[str] = []
    federation.server.hook = lambda request: asked.extend(
        request.query["fromDate"] for part in request.path if part == "object"
    )
    federation.harvest()
    assert asked[0] == "2024-05-14T09:01:39.000Z"
    assert federation.harvested == federation.server.pids
    assert federation.member.last_harvested == at(449)


@pytest.mark.parametrize(("fault", "kind"), FAULTS, ids=NAMES)
def test_an_object_that_fails_is_noted_reported_and_left_for_later(
    federation: Federation, fault: Fault, kind: type[MemberNodeError]
) -> None:
    federation.server.fill(50, first=at(0))
    federation = federation.impatient() if kind is MemberTimedOut else federation
    bad = "doi:10.5/000033"
    seen = faulty(federation.server, fault, meta={bad})
    outcome = federation.harvest()
    assert (outcome.stored, outcome.failed, outcome.last_harvested) == (49, 1, at(49))
    [failed] = federation.catalog.failed(federation.member_id)
    tries = 1 if failed.status in NOT_THERE else federation.settings.tries
    assert seen[f"meta/{bad}"] == tries
    assert (failed.pid, failed.tries) == (bad, 1)
    assert federation.member_id in failed.reason
    [report] = federation.server.errors
    assert f'identifier="{bad}"'.encode() in report
    assert federation.harvest().postponed == 1
    assert seen[f"meta/{bad}"] == tries
    federation.server.hook = lambda request: None
    later = federation.harvest(clock=lambda: failed.next_try)
    assert (later.stored, federation.catalog.failed(federation.member_id)) == (1, [])
    assert federation.harvested == federation.server.pids


def test_an_object_that_fails_once_is_tried_again_within_the_run(federation: Federation) -> None:
    federation.server.fill(20, first=at(0))
    tried: Counter[str] = Counter()

    def once(request: Request) -> Reply | None:
        tried["/".join(request.path)] += 1
        return (
            failure(500, "ServiceFailure", "")
            if tried["/".join(request.path)] == 1 and request.path[0] == "meta"
            else None
        )

    federation.server.hook = once
    outcome = federation.harvest()
    assert (outcome.stored, outcome.failed) == (20, 0)


def test_an_entry_that_cannot_be_read_is_left_out_reported_and_its_object_fetched_later(federation: Federation) -> None:
    federation.server.fill(20, first=at(0))
    bad = "doi:10.5/000007"

    def spoil(request: Request) -> Reply | None:
        if request.path[0] != "object":
            return None
        body = federation.server._list(request).body
        assert isinstance(body, bytes)
        parts = body.decode().split("<objectInfo>")
        wrong = [part.replace("Modified>2", "Modified>x") if bad in part else part for part in parts]
        return Reply("<objectInfo>".join([*wrong[:-1], "</objectInfo>", wrong[-1]]).encode())

    federation.server.hook = spoil
    for _ in range(2):
        outcome = federation.harvest(complete=True)
        assert (outcome.outcome, outcome.unreadable, outcome.last_harvested) == ("succeeded", 2, at(19))
    [failed] = federation.catalog.failed(federation.member_id)
    assert (failed.pid, failed.tries) == (bad, 1)
    assert "dateSysMetadataModified" in failed.reason
    assert len(federation.server.errors) == 1
    assert "unreadable entries in its listing: 2" in str(federation.catalog.summary(federation.member_id).error)
    federation.harvest(clock=lambda: failed.next_try)
    assert federation.harvested == federation.server.pids


def test_many_old_failures_come_after_what_is_new_and_get_no_more_than_their_time(federation: Federation) -> None:
    lost = [f"lost/{number:03d}" for number in range(300)]
    failed = [Failed(ObjectToFetch(pid, None), "not found", 404) for pid in lost]
    federation.catalog.store(federation.member_id, fence=next(federation.fences), failed=failed, now=at(0))
    federation.server.put("new", at(60))
    asked: list[str] = []

    def slow(request: Request) -> None:
        if request.path[0] == "meta":
            asked.append(request.path[1])
            time.sleep(0.02)  # the member's own

    federation.server.hook = slow
    hurried = federation.with_settings(failure_time=0.2)
    outcome = hurried.harvest()
    assert (asked[0], outcome.stored, outcome.last_harvested) == ("new", 1, at(60))
    assert outcome.failed < len(lost)
    for _ in range(300):
        if len(asked) > len(lost):
            break
        hurried.harvest()
    assert sorted(asked[1:]) == lost  # each run went on behind the one before


def test_an_object_that_failed_and_then_changed_is_fetched_at_once(federation: Federation) -> None:
    federation.server.fill(5, first=at(0))
    faulty(federation.server, says(500), meta={"doi:10.5/000003"})
    federation.harvest()
    federation.server.hook = lambda request: None
    federation.server.put("doi:10.5/000003", at(60))
    federation.harvest()
    assert federation.catalog.failed(federation.member_id) == []
    assert federation.harvested == federation.server.pids


def test_a_member_none_of_whose_objects_can_be_fetched_has_failed(federation: Federation) -> None:
    federation.server.fill(30, first=at(0))
    faulty(federation.server, says(401), meta=federation.server.pids)
    with pytest.raises(MemberRefused) as refused:
        federation.harvest()
    assert refused.value.status == 401
    assert federation.catalog.summary(federation.member_id).failed == 30
    assert federation.member.last_harvested is None


def test_a_member_that_dies_under_a_harvest_ends_it_and_is_not_blamed_on_its_objects(federation: Federation) -> None:
    federation.server.fill(400, first=at(0))
    dead, failures = threading.Event(), threading.Semaphore(0)

    def die(request: Request) -> Reply | None:
        if request.path == ("meta", "doi:10.5/000149"):  # its answer is on its way while others fail already
            for _ in range(12):
                failures.acquire(timeout=20)
            return None
        if request.path == ("meta", "doi:10.5/000150"):
            dead.set()
        if not dead.is_set():
            return None
        failures.release()
        return failure(500, "ServiceFailure", "gone")

    federation.server.hook = die
    with pytest.raises(MemberNodeError, match="monitor/ping"):
        federation.harvest()
    stored, failed = federation.catalog.summary(federation.member_id)[:2]
    assert (stored > 120, failed) == (True, 0)  # those of the page that was not complete, too
    federation.server.hook = lambda request: None
    federation.harvest()
    assert federation.harvested == federation.server.pids


@pytest.mark.parametrize("complete", [False, True])
def test_a_listing_that_is_refused_fails_in_the_members_words_and_moves_nothing(
    federation: Federation, complete: bool
) -> None:
    federation.server.fill(30, first=at(0))
    federation.harvest()
    before = federation.catalog.objects(federation.member_id), federation.member
    federation.server.hook = lambda request: (
        failure(401, "NotAuthorized", "you may not list") if request.path[0] == "object" else None
    )
    with pytest.raises(MemberRefused, match="answers 401 NotAuthorized: you may not list"):
        federation.harvest(complete=complete)
    assert (federation.catalog.objects(federation.member_id), federation.member) == before
    assert federation.catalog.failed(federation.member_id) == []
    assert federation.catalog.cursor(federation.member_id, "complete" if complete else "increment") is None
    assert federation.catalog.summary(federation.member_id).outcome == "failed"


def test_many_broken_objects_in_a_row_do_not_stop_those_behind_them(federation: Federation) -> None:
    federation.server.fill(300, first=at(0))
    broken = {f"doi:10.5/{number:06d}" for number in range(50, 250)}
    faulty(federation.server, says(404), meta=broken)
    outcome = federation.harvest()
    assert (outcome.stored, outcome.failed, outcome.last_harvested) == (100, 200, at(299))
    assert len(federation.server.errors) == federation.settings.report_limit


LATE = 0


@pytest.mark.parametrize(
    ("answers", "asked", "taken"),
    [([LATE, 500, 200, 500], 10, 7), ([404], 1, 0), ([501], 1, 0), ([500] * 10, 3, 0)],
    ids=["late and failing now and then", "refusing", "without such reports", "failing"],
)
def test_a_report_that_is_answered_late_silences_no_other_and_one_that_is_refused_does(
    federation: Federation, answers: list[int], asked: int, taken: int
) -> None:
    federation.server.fill(30, first=at(0))
    broken, over, reports = {f"doi:10.5/{number:06d}" for number in range(10)}, threading.Event(), list[int]()

    def trouble(request: Request) -> Reply | None:
        if request.path[0] != "error":
            return failure(404, "NotFound", "") if request.path[-1] in broken else None
        reports.append(answers[len(reports)] if len(reports) < len(answers) else 200)
        if reports[-1] == LATE:
            over.wait(25)  # less than an object may take, and more than a report
        return None if reports[-1] in (LATE, 200) else failure(reports[-1], "SomeName", "")

    federation.server.hook = trouble
    outcome = federation.harvest()
    assert (outcome.stored, outcome.failed) == (20, 10)
    assert (len(reports), len(federation.server.errors)) == (asked, taken)
    over.set()


def test_a_member_that_hangs_over_its_objects_gives_its_place_back_and_each_run_goes_on(federation: Federation) -> None:
    federation = federation.impatient()
    federation.server.fill(60, first=at(0))
    hanging, over = set(federation.server.pids), threading.Event()

    def hang(request: Request) -> None:
        if request.path[0] == "meta" and request.path[1] in hanging:
            over.wait(20)

    federation.server.hook = hang
    patience = federation.settings.give_up_after
    for run in (1, 2):
        with pytest.raises(Stalled, match=f"took too long for {patience} objects in a row"):
            federation.harvest()
        assert len(federation.catalog.failed(federation.member_id)) == run * patience
        assert federation.member.last_harvested is None
    failed = federation.catalog.failed(federation.member_id)
    hanging &= {one.pid for one in failed}
    outcome = federation.harvest()
    assert (outcome.postponed, outcome.stored, outcome.last_harvested) == (len(failed), 60 - len(failed), at(59))
    federation.server.put("doi:10.5/new", at(70))
    later = federation.harvest(clock=lambda: max(one.next_try for one in failed))
    assert (later.outcome, later.stored, later.failed, later.last_harvested) == ("succeeded", 1, patience, at(70))
    over.set()
    due = max(one.next_try for one in federation.catalog.failed(federation.member_id))
    federation.harvest(clock=lambda: due)
    assert federation.harvested == federation.server.pids


def test_who_was_succeeded_writes_nothing_more(federation: Federation) -> None:
    federation.server.fill(300, first=at(0))

    def succeed(request: Request) -> None:
        if request.path == ("meta", "doi:10.5/000150"):
            federation.catalog.ran(federation.member_id, fence=99, now=at(0), outcome="the successor's")

    federation.server.hook = succeed
    with pytest.raises(Superseded):
        federation.harvest(fence=1)
    assert len(federation.harvested) == 100
    assert federation.member.last_harvested is None
    assert federation.catalog.summary(federation.member_id).outcome == "the successor's"


def test_a_lost_lease_ends_the_harvest_before_the_next_write(federation: Federation) -> None:
    federation.server.fill(300, first=at(0))
    lost = threading.Event()

    def lose(request: Request) -> None:
        if request.path == ("meta", "doi:10.5/000150"):
            lost.set()

    def check() -> None:
        if lost.is_set():
            raise LeaseLost

    federation.server.hook = lose
    with pytest.raises(LeaseLost):
        federation.harvest(check=check)
    assert len(federation.harvested) == 100


def test_one_hanging_member_does_not_hold_another_back(federation: Federation) -> None:
    over = threading.Event()
    with MemberServer("urn:node:mnHanging", hook=lambda request: Reply() if over.wait(20) else None) as hanging:
        other = Federation(federation.settings, hanging, federation.catalog, OneMember(hanging.member))
        federation.server.fill(50, first=at(0))
        ended: list[type] = []

        def hang() -> None:
            with pytest.raises(MemberTimedOut):
                other.impatient().harvest()
            ended.append(MemberTimedOut)

        thread = threading.Thread(target=hang)
        thread.start()
        assert federation.harvest().stored == 50
        thread.join(60)
        over.set()
    assert ended == [MemberTimedOut]
    assert federation.catalog.summary("urn:node:mnHanging").outcome == "failed"
    assert federation.catalog.summary(federation.member_id).outcome == "succeeded"


@IN_BOTH
@pytest.mark.parametrize("stored", [False, True], ids=["none is found", "one is found"])
def test_failures_of_one_kind_are_one_with_an_example_and_pids_that_a_server_cuts_at_a_slash_are_counted(
    federation: Federation, stored: bool
) -> None:
    federation.server.fill(20, first=at(0))
    federation.server.fill(1, first=at(0), prefix="plain")

    def cut(request: Request) -> Reply | None:
        if request.path[0] == "meta" and "/" in request.path[1] and not (stored and request.path[1].endswith("3")):
            return failure(404, "NotFound", f"no {request.path[1]!r} at {federation.server.member.base_url}/x in 3.7 s")
        return None

    federation.server.hook = cut
    federation.harvest()
    summary = federation.catalog.summary(federation.member_id)
    (failed, count), *others = summary.reasons.items()
    assert not others
    assert (failed, count) == ("answers 404 NotFound: no 'PID' at  in N.N s (such as doi:10.5/000000)", 20 - 2 * stored)
    assert summary.slashes == (0 if stored else 20)
