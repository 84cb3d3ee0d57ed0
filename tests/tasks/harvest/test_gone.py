"""What a member has deleted is marked as gone, and nothing else is, however the member breaks."""

from collections import Counter
from collections.abc import Callable

import pytest

from examples.demo.member_server import Reply, Request, failure, listing
from tasks import instants
from tasks.catalog.sightings import Sightings
from tasks.harvest import gone
from tasks.member_node.client import Failing
from tests.tasks.conftest import IN_BOTH, Federation, at
from tests.tasks.faults import Fault, always, faulty, says
from tests.tasks.harvest.test_listing import counting

A, B, C = (f"doi:10.5/{number:06d}" for number in (3, 7, 11))


def gone_of(federation: Federation) -> set[str]:
    found = Sightings(federation.catalog.engine).gone(federation.member_id, limit=10**6)
    assert all(row["gone_since"] for row in found)
    return {str(row["pid"]) for row in found}


def counts(federation: Federation) -> tuple[int, int, int]:
    summary = federation.catalog.summary(federation.member_id)
    return summary.objects, summary.gone, summary.failed


def asked_of(seen: Counter[str]) -> set[str]:
    return {path.removeprefix("meta/") for path in seen if path.startswith("meta/")}


def harvested(federation: Federation, count: int = 30, deleted: tuple[str, ...] = (A, B)) -> Federation:
    """After a harvest of that many objects, some of which the member has deleted since."""
    federation.server.fill(count, first=at(0))
    federation.harvest()
    for pid in deleted:
        federation.server.remove(pid)
    return federation


@IN_BOTH
def test_an_object_that_its_member_deleted_is_gone_after_the_next_complete_pass_and_stays(
    federation: Federation,
) -> None:
    harvested(federation)
    assert federation.harvest().gone == 0  # an increment sees only what changed
    assert counts(federation) == (30, 0, 0)
    outcome = federation.harvest(complete=True, clock=lambda: at(99))
    assert (outcome.outcome, outcome.gone, outcome.unchanged) == ("succeeded", 2, 28)
    assert [row["gone_since"] for row in Sightings(federation.catalog.engine).gone(federation.member_id)] == [
        at(99)
    ] * 2
    assert counts(federation) == (28, 2, 0)
    assert federation.harvested == federation.server.pids
    assert federation.catalog.document(federation.member_id, A)
    assert federation.member.last_harvested == at(29)
    seen = faulty(federation.server, says(500))
    assert federation.harvest(complete=True).gone == 0
    assert not asked_of(seen)


@IN_BOTH
@pytest.mark.parametrize("complete", [False, True])
def test_an_object_that_comes_back_with_its_old_date_is_fetched_and_gone_no_more(
    federation: Federation, complete: bool
) -> None:
    harvested(federation, deleted=(B,))
    federation.harvest(complete=True)
    assert gone_of(federation) == {B}
    federation.server.put(B, at(7))
    assert federation.harvest(complete=complete).stored == 1
    assert gone_of(federation) == set()
    assert federation.harvested == federation.server.pids


def test_one_that_was_asked_for_by_name_is_gone_no_more(federation: Federation) -> None:
    harvested(federation, deleted=(B,))
    federation.harvest(complete=True)
    federation.server.put(B, at(7))
    federation.harvest(pids=[B])
    assert gone_of(federation) == set()


@IN_BOTH
def test_a_pass_that_was_interrupted_and_resumed_is_one_pass(federation: Federation) -> None:
    harvested(federation, 450, ("doi:10.5/000010", "doi:10.5/000400"))
    faulty(federation.server, says(500), listings=3)
    with pytest.raises(Failing):
        federation.harvest(complete=True)
    federation.server.remove("doi:10.5/000020")  # seen by now: the next pass will miss it
    seen = faulty(federation.server, says(500))
    assert federation.harvest(complete=True).gone == 2
    assert gone_of(federation) == {"doi:10.5/000010", "doi:10.5/000400"}
    assert len(asked_of(seen) - gone_of(federation)) <= gone.SAMPLES  # not what the first part had seen
    assert federation.harvest(complete=True).gone == 1


def fewer(federation: Federation, count: int) -> Callable[[Request], Reply | None]:
    """Lists only the first so many objects, whatever their number is."""

    def hook(request: Request) -> Reply | None:
        if request.path[0] != "object":
            return None
        entries = federation.server.entries(
            instants.parse(request.query["fromDate"]), instants.parse(request.query["toDate"])
        )[:count]
        return listing(entries, 0, len(entries) if request.query["count"] != "1" else 28)

    return hook


@pytest.mark.parametrize("count", [0, 10, 27])
def test_a_pass_that_saw_less_than_the_member_counts_marks_nothing_and_asks_for_nothing(
    federation: Federation, count: int
) -> None:
    harvested(federation)
    asked: list[str] = []
    short = fewer(federation, count)
    federation.server.hook = lambda request: asked.append(request.path[0]) or short(request)
    assert federation.harvest(complete=True).gone == 0
    assert "meta" not in asked


@IN_BOTH
def test_where_a_member_always_counts_one_more_than_it_lists_the_second_pass_knows_it_and_marks_what_is_gone(
    federation: Federation,
) -> None:
    harvested(federation)
    federation.server.hook = counting(federation.server, 1)
    assert [federation.harvest(complete=True).gone for _ in range(2)] == [0, 2]
    assert gone_of(federation) == {A, B}
    summary = federation.catalog.summary(federation.member_id)
    assert (summary.outcome, summary.error and summary.error.partition(",")[0]) == (
        "succeeded",
        "its listing counts 29 objects and has 28",
    )
    federation.server.remove(C)
    federation.server.hook = counting(federation.server, 2)
    assert federation.harvest(complete=True).gone == 0  # it may have lost something else
    assert federation.harvest(complete=True).gone == 1


def test_a_member_that_lists_nothing_of_what_it_counts_loses_nothing(federation: Federation) -> None:
    harvested(federation)
    federation.server.hook = lambda request: listing([], 0, 28) if request.path[0] == "object" else says(404)(request)
    assert [federation.harvest(complete=True).gone for _ in range(2)] == [0, 0]


def test_an_empty_list_is_no_proof(federation: Federation) -> None:
    harvested(federation)
    federation.server.hook = lambda request: listing([], 0, 0) if request.path[0] == "object" else says(404)(request)
    assert federation.harvest(complete=True).gone == 0


@pytest.mark.parametrize("fault", [says(401), says(403), says(500), says(503), always(Reply(b"garbage"))])
def test_no_answer_but_not_found_marks_an_object(federation: Federation, fault: Fault) -> None:
    harvested(federation, deleted=(A,))
    faulty(federation.server, fault, meta={A})
    outcome = federation.harvest(complete=True)
    assert (outcome.outcome, outcome.gone, gone_of(federation)) == ("succeeded", 0, set())
    faulty(federation.server, says(410), meta={A})
    assert federation.harvest(complete=True).gone == 1


def test_a_member_that_finds_none_of_its_objects_loses_none(federation: Federation) -> None:
    harvested(federation)
    faulty(federation.server, says(404), meta=federation.server.pids | {A, B})
    assert federation.harvest(complete=True).gone == 0
    federation.server.hook = lambda request: None
    assert federation.harvest(complete=True).gone == 2


def test_a_member_that_dies_while_it_is_asked_is_asked_for_the_rest_next_time(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gone, "PORTION", 50)
    harvested(federation, 250, tuple(f"doi:10.5/{number:06d}" for number in range(20, 220)))
    asked: list[str] = []

    def die(request: Request) -> Reply | None:
        asked.append(request.path[0])
        return failure(500, "ServiceFailure", "gone") if asked.count("meta") > 60 else None

    federation.server.hook = die
    outcome = federation.harvest(complete=True)
    assert (outcome.outcome, outcome.gone) == ("succeeded", len(gone_of(federation)))
    assert outcome.gone == 50  # the witnesses of the next portion were silent
    assert asked.count("meta") < 60 + 2 * federation.settings.give_up_after + gone.SAMPLES + 10
    federation.server.hook = lambda request: None
    assert federation.harvest(complete=True).gone == 150
    assert federation.harvested == federation.server.pids


@pytest.mark.parametrize("status", [200, 401, 500])
def test_the_questions_of_a_pass_are_bounded_and_the_next_pass_goes_on_behind_them(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    harvested(federation, 30, ("doi:10.5/000028", "doi:10.5/000029"))
    hidden = {f"doi:10.5/{number:06d}" for number in range(5)}
    monkeypatch.setattr(gone, "MOST_REQUESTS", 5)

    def hide(request: Request) -> Reply | None:
        if request.path[0] != "object":
            return says(status)(request) if request.path[-1] in hidden and status != 200 else None
        found = [one for one in federation.server.entries(at(-1), at(999)) if one[1] not in hidden]
        return listing(found, 0, len(found))

    federation.server.hook = hide
    assert federation.harvest(complete=True).gone == 0
    assert federation.harvest(complete=True).gone == 2
    assert gone_of(federation) == {"doi:10.5/000028", "doi:10.5/000029"}


def test_a_failed_object_that_is_gone_is_not_tried_for_ever(federation: Federation) -> None:
    harvested(federation, deleted=())
    federation.server.put("never stored", at(100))
    federation.server.put(C, at(101))
    faulty(federation.server, says(500), meta={"never stored", C})
    federation.harvest()
    assert counts(federation) == (30, 0, 2)
    for pid in ("never stored", C):
        federation.server.remove(pid)
    federation.server.hook = lambda request: None
    assert federation.harvest(complete=True).gone == 2
    assert counts(federation) == (29, 1, 0)
    assert gone_of(federation) == {C}


def test_a_search_without_its_lease_marks_nothing(federation: Federation) -> None:
    class LeaseLost(Exception):
        pass

    harvested(federation)
    asked: list[str] = []

    def check() -> None:
        if A in asked:
            raise LeaseLost

    federation.server.hook = lambda request: asked.append(request.path[-1])
    with pytest.raises(LeaseLost):
        federation.harvest(complete=True, check=check)
    assert gone_of(federation) == set()


def test_a_member_that_knows_no_window_is_searched_too(federation: Federation) -> None:
    harvested(federation)

    def whole(request: Request) -> Reply | None:
        if request.path[0] != "object":
            return None
        if "toDate" in request.query:
            return failure(400, "InvalidRequest", "toDate")
        found = federation.server.entries(instants.parse(request.query["fromDate"]), instants.now())
        return listing(found, 0, len(found))

    federation.server.hook = whole
    federation.server.put("too new for this pass")
    assert federation.harvest(complete=True).gone == 2
