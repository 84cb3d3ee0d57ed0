import tracemalloc
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

import pytest

from examples.demo.member_server import Reply, Request, system_metadata
from tasks import instants
from tasks.catalog.catalog import Cursor, ObjectToFetch
from tasks.catalog.events import ObjectEvents
from tasks.harvest.fetcher import AHEAD, Fetcher
from tasks.harvest.patience import MemberPatience
from tasks.harvest.sync_request import SyncRequest
from tasks.member_node.client import Failing, MemberNode, MemberRefused
from tests.tasks.conftest import IN_BOTH, Federation, at
from tests.tasks.faults import AWKWARD, faulty, says


def test_a_first_harvest_stores_everything_and_then_says_so(federation: Federation) -> None:
    federation.server.fill(450, first=at(0.000007))
    outcome = federation.harvest()
    assert (outcome.outcome, outcome.stored, outcome.failed) == ("succeeded", 450, 0)
    assert federation.harvested == federation.server.pids
    assert federation.member.last_harvested == outcome.last_harvested == at(449)
    assert federation.catalog.summary(federation.member_id).outcome == "succeeded"


def test_a_second_harvest_fetches_only_what_changed(federation: Federation) -> None:
    federation.server.fill(300, first=at(0))
    federation.harvest()
    federation.server.put("doi:10.5/000007", at(500))
    seen = faulty(federation.server, says(500))
    outcome = federation.harvest()
    assert (outcome.stored, outcome.last_harvested) == (1, at(500))
    assert [path for path in seen if path.startswith("meta")] == ["meta/doi:10.5/000007"]
    assert seen["object"] == 4  # those of the ten minutes before are listed once more


@pytest.mark.parametrize("pid", AWKWARD)
def test_any_pid_can_be_harvested(federation: Federation, pid: str) -> None:
    federation.server.put(pid, at(0))
    federation.harvest()
    assert federation.harvested == {pid}


def test_nothing_is_lost_while_the_member_changes(federation: Federation) -> None:
    federation.server.fill(600, first=at(0))
    everything = federation.server.pids

    def change(request: Request) -> None:
        if request.path[0] == "meta" and request.path[1].endswith("7"):
            federation.server.put(request.path[1])
            federation.server.put(f"{request.path[1]}-new")

    federation.server.hook = change
    assert federation.harvest().last_harvested == at(599)
    assert federation.harvested == everything
    federation.server.hook = lambda request: None
    federation = federation.with_settings(margin=0)
    federation.harvest()
    assert federation.harvested == federation.server.pids
    dates = {row["pid"]: row["modified"] for row in federation.catalog.objects(federation.member_id, limit=10**4)}
    assert dates == {pid: modified for modified, pid in federation.server.entries(at(-1), instants.now())}


def test_the_window_ends_before_now_and_begins_before_the_last_harvest(federation: Federation) -> None:
    federation.server.put("a", at(1000))
    federation.server.put("too new")
    federation.harvest()
    assert federation.harvested == {"a"}
    federation.server.put("late", at(500))
    federation.server.put("too late", at(300))
    outcome = federation.harvest()
    assert federation.harvested == {"a", "late"}
    assert outcome.last_harvested == at(1000)


def test_the_complete_pass_finds_what_the_others_missed(federation: Federation) -> None:
    federation.server.fill(150, first=at(10_000))
    federation.harvest()
    federation.server.put("very late", at(0))
    assert federation.harvest().stored == 0
    outcome = federation.harvest(complete=True)
    assert (outcome.stored, outcome.complete) == (1, True)
    assert federation.harvested == federation.server.pids
    assert federation.member.last_harvested == at(10_149)
    complete = federation.member.last_complete_harvest
    assert complete is not None
    assert instants.now() - complete < timedelta(minutes=1)


def test_a_part_of_a_complete_pass_finds_what_others_missed_between_its_dates_and_leaves_dates_alone(
    federation: Federation,
) -> None:
    federation.server.fill(150, first=at(10_000))
    federation.harvest()
    before = federation.member
    for pid, second in (("before", 99), ("first", 100), ("last", 199), ("behind", 200)):
        federation.server.put(pid, at(second))
    federation.server.put("doi:10.5/000007", at(150))
    outcome = federation.harvest(request=SyncRequest(None, between=(at(100), at(200))))
    assert (outcome.listed, outcome.stored, outcome.complete) == (3, 3, False)
    assert federation.server.pids - federation.harvested == {"before", "behind"}
    again = federation.harvest(request=SyncRequest(None, between=(at(100), at(200))))
    assert (again.unchanged, again.stored) == (3, 0)
    assert federation.member == before
    assert federation.harvest(complete=True).stored == 2


def test_a_part_of_a_complete_pass_leaves_the_cursor_of_another_pass(federation: Federation) -> None:
    federation.server.fill(3, first=at(100))
    mark = Cursor("complete", instants.NEVER, at(50), at(60), None)
    federation.catalog.store(federation.member_id, fence=0, cursor=mark, now=at(70))
    assert federation.harvest(request=SyncRequest(None, between=(at(0), at(1000)))).stored == 3
    assert federation.catalog.cursor(federation.member_id, "complete") == mark


def test_asked_for_pids_only_those_are_fetched_and_the_dates_stay(federation: Federation) -> None:
    federation.server.fill(20, first=at(0))
    federation.harvest()
    seen = faulty(federation.server, says(500))
    outcome = federation.harvest(pids=["doi:10.5/000003", "doi:10.5/000003", "doi:10.5/000004"])
    assert (outcome.listed, outcome.stored) == (2, 2)
    assert seen["object"] == 0
    with pytest.raises(MemberRefused):
        federation.harvest(pids=["nowhere"])
    assert [failed.pid for failed in federation.catalog.failed(federation.member_id)] == ["nowhere"]
    assert federation.member.last_harvested == at(19)


def test_a_refreshed_object_does_not_move_the_date_past_what_was_not_listed(federation: Federation) -> None:
    federation.server.fill(20, first=at(0))
    federation.harvest()
    federation.server.put("between", at(5000))
    federation.server.put("wanted at once", at(9000))
    federation.harvest(pids=["wanted at once"])
    assert federation.member.last_harvested == at(19)
    federation.harvest()
    assert federation.harvested == federation.server.pids


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"state": "down"}, "its state is down"),
        ({"synchronize": False}, "it asks not to be synchronized"),
        ({"identifier": "urn:node:other"}, "it is not in the nodelist, or not approved"),
    ],
)
def test_a_member_that_is_not_to_be_synchronized_is_left_alone(
    federation: Federation, changed: dict[str, object], reason: str
) -> None:
    federation.nodelist.listed = federation.member.model_copy(update=changed)
    seen = faulty(federation.server, says(500))
    outcome = federation.harvest()
    assert (outcome.outcome, outcome.reason) == ("not synchronizable", reason)
    assert not seen


@pytest.mark.parametrize("whole", [1, 0], ids=["after a whole pass", "in the first pass"])
@pytest.mark.parametrize("resets", [1, 2])
def test_a_reset_makes_the_next_harvest_begin_at_the_beginning(federation: Federation, whole: int, resets: int) -> None:
    federation.server.put("first", at(9000))
    for _ in range(whole):
        federation.harvest()
    federation.server.fill(300, first=at(10_000))
    faulty(federation.server, says(500), listings=3)  # the pass stops behind its first pages
    with pytest.raises(Failing):
        federation.harvest()
    federation.server.put("early", at(0))
    federation.server.hook = lambda request: None
    for _ in range(resets):
        federation.nodelist.reset()
    federation.harvest()
    assert federation.harvested == federation.server.pids


def without_a_date(federation: Federation, pid: str, format_id: str = "text/csv") -> None:
    """The member changes the metadata of an object, and not its date; a listing shows another format."""

    def changed(request: Request) -> Reply | None:
        if request.path[0] not in ("object", "meta") or (request.path[0] == "meta" and request.path[1] != pid):
            return None
        body = federation.server._list(request) if request.path[0] == "object" else system_metadata(pid, at(7))
        assert isinstance(body.body, bytes)
        head, here, rest = body.body.partition(f"<identifier>{pid}".encode())
        rest = rest.replace(b"text/csv", format_id.encode(), 1).replace(b"CN=Loopback", b"CN=Another", 1)
        return body._replace(body=head + here + rest)

    federation.server.hook = changed


def changes(federation: Federation) -> list[tuple[str, str]]:
    """The events of objects, but for those of the first harvest."""
    events = ObjectEvents(federation.catalog.engine).after(0)
    return [(event.pid, event.kind) for event in events if event.kind != "new"]


@IN_BOTH
@pytest.mark.parametrize("complete", [False, True])
def test_a_reset_reads_everything_anew_and_only_what_is_another_makes_an_event(
    federation: Federation, complete: bool
) -> None:
    federation.server.fill(30, first=at(0))
    faulty(federation.server, says(404), meta={"doi:10.5/000003"})
    federation.harvest()
    pid = "doi:10.5/000007"
    without_a_date(federation, pid)
    assert federation.harvest(complete=True).stored == 0  # no listing shows it
    federation.nodelist.reset()
    outcome = federation.harvest(complete=complete)
    assert (outcome.stored, outcome.failed, outcome.postponed) == (30, 0, 0)
    assert b"CN=Another" in (federation.catalog.document(federation.member_id, pid) or b"")
    assert changes(federation) == [(pid, "changed")]
    assert federation.harvest().stored == federation.harvest(complete=True).stored == 0


def test_a_reset_whose_pass_breaks_off_goes_on_and_fetches_each_object_once(federation: Federation) -> None:
    federation.server.fill(450, first=at(0))
    federation.harvest()
    federation.nodelist.reset()
    first = faulty(federation.server, says(500), listings=3)
    with pytest.raises(Failing):
        federation.harvest()
    rest = faulty(federation.server, says(500))
    assert federation.harvest().outcome == "succeeded"
    assert {count for path, count in (first + rest).items() if path.startswith("meta")} == {1}


@IN_BOTH
@pytest.mark.parametrize("complete", [False, True])
def test_an_object_that_was_replaced_without_a_new_date_is_found_by_its_entry(
    federation: Federation, complete: bool
) -> None:
    federation.server.fill(30, first=at(0))
    federation.harvest()
    pid = "doi:10.5/000007"
    without_a_date(federation, pid, "text/xml")
    assert federation.harvest(complete=complete).stored == 1
    assert changes(federation) == [(pid, "changed")]
    assert federation.harvest(complete=True).stored == 0


def test_a_member_whose_listing_says_otherwise_than_its_metadata_is_fetched_once(federation: Federation) -> None:
    federation.server.fill(30, first=at(0))
    federation.harvest(pids=["doi:10.5/000003"])

    def otherwise(request: Request) -> Reply | None:
        if request.path[0] != "object":
            return None
        body = federation.server._list(request).body
        assert isinstance(body, bytes)
        return Reply(body.replace(b"text/csv", b"application/octet-stream"))

    federation.server.hook = otherwise
    assert [federation.harvest(complete=True).stored for _ in range(2)] == [30, 0]


def test_a_reset_while_a_harvest_runs_is_not_undone_by_it(federation: Federation) -> None:
    federation.server.fill(20, first=at(0))

    def reset(request: Request) -> None:
        if request.path[0] == "object":
            federation.nodelist.reset()

    federation.harvest()
    federation.server.put("a", at(60))
    federation.server.hook = reset
    assert federation.harvest().outcome == "reset meanwhile"
    assert federation.member.last_harvested == instants.NEVER


def test_progress_grows_to_its_total(federation: Federation) -> None:
    federation.server.fill(450, first=at(0))
    told: list[tuple[int, int]] = []
    federation.harvest(progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (450, 450)
    assert all(one <= other for one, other in pairwise(told))
    assert len(told) > 4


def test_memory_does_not_grow_with_the_number_of_objects(federation: Federation) -> None:
    federation = federation.with_settings(read_timeout=20, request_timeout=20)  # traced, all is slow
    peaks = []
    for count in (100, 200, 1200):  # the first one loads modules
        federation.server.fill(count, first=at(count * 10), prefix=f"{count}/")
        tracemalloc.start()
        federation.harvest()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert len(federation.harvested) == 1500
    assert peaks[2] < peaks[1] * 2


def test_only_a_bounded_number_of_objects_is_in_hand_at_once(federation: Federation) -> None:
    asked: list[str] = []

    def endless() -> Iterator[ObjectToFetch]:
        while True:
            asked.append("doi:10.5/000000")
            yield ObjectToFetch(asked[-1], None)

    federation.server.fill(1)
    with (
        MemberNode(federation.server.member, federation.settings) as client,
        Fetcher(client, federation.settings, MemberPatience(client, federation.settings)) as fetcher,
    ):
        next(fetcher.fetch(endless()))
    assert len(asked) == AHEAD * federation.settings.connections


def test_documents_too_large_to_be_held_at_once_are_stored_in_parts(federation: Federation) -> None:
    federation = federation.with_settings(read_timeout=20, request_timeout=20)
    federation.server.fill(30, first=at(0))

    def padded(request: Request) -> Reply | None:
        if request.path[0] != "meta":
            return None
        content = system_metadata(request.path[1], at(int(request.path[1][-6:]))).body
        assert isinstance(content, bytes)
        return Reply(content + b" " * 2 * 1024 * 1024)

    federation.server.hook = padded
    sizes: list[int] = []
    federation.harvest(check=lambda: sizes.append(len(federation.harvested)))
    assert federation.harvested == federation.server.pids
    assert len(set(sizes)) > 3
