"""A member is listed completely, however it lists. Each test is a member with a habit of its own."""

import re
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import pytest

from examples.demo import member_server
from examples.demo.member_server import Hook, MemberServer, Reply, Request, failure
from tasks import instants
from tasks.harvest.listing import ListingPage, ListingPages
from tasks.harvest.patience import MemberPatience
from tasks.member_node.client import Failing, Malformed, MemberNode, MemberRefused, MemberTimedOut
from tasks.settings import Settings
from tests.tasks.conftest import IMPATIENT, at

MS = timedelta(milliseconds=1)


def pages(server: MemberServer, settings: Settings) -> Iterator[ListingPage]:
    with MemberNode(server.member, settings) as client:
        yield from ListingPages(client, at(-10), at(100_000), settings, MemberPatience(client, settings))


def pids(pages: Iterator[ListingPage]) -> set[str]:
    return {entry.pid for page in pages for entry in page.entries}


@contextmanager
def member(entries: Callable[[list[tuple[datetime, str]]], list[tuple[datetime, str]]]) -> Iterator[MemberServer]:
    """A member that arranges what it lists in its own way."""

    class Arranged(MemberServer):
        def entries(self, since: datetime, until: datetime) -> list[tuple[datetime, str]]:
            return entries(super().entries(since, until))

    with Arranged() as server:
        yield server


def changes_before_each_listing(server: MemberServer, change: Callable[[int], None]) -> list[Request]:
    seen: list[Request] = []

    def hook(request: Request) -> None:
        if request.path[0] == "object":
            seen.append(request)
            change(len(seen))

    server.hook = hook
    return seen


def test_objects_touched_between_the_pages_take_none_with_them(server: MemberServer, settings: Settings) -> None:
    server.fill(1200, first=at(0))
    everything = server.pids

    def touch(number: int) -> None:
        for position in range(10 if number > 1 else 0):  # of those already listed, whose places others then take
            server.put(f"doi:10.5/{(number - 2) * 90 + position:06d}", at(200_000 + number))

    changes_before_each_listing(server, touch)
    assert pids(pages(server, settings)) == everything


def test_each_page_begins_where_the_one_before_ended(server: MemberServer, settings: Settings) -> None:
    server.fill(250, first=at(0.0005005))
    seen = changes_before_each_listing(server, lambda number: None)
    found = list(pages(server, settings))
    assert [page.total for page in found] == [250, 150, 51]
    assert [page.cursor for page in found] == [at(-10), at(99), at(198)]
    assert [request.query["start"] for request in seen] == ["0", "0", "0"]
    assert [request.query["fromDate"] for request in seen][1:] == [
        "2024-05-14T09:01:39.000Z",
        "2024-05-14T09:03:18.000Z",
    ]


def test_3000_objects_on_one_instant_are_listed(server: MemberServer, settings: Settings) -> None:
    server.fill(5, first=at(0))
    server.fill(3000, first=at(50), step=timedelta(0), prefix="same/")
    server.fill(150, first=at(51), prefix="later/")
    assert pids(pages(server, settings)) == server.pids


def test_3000_objects_within_one_millisecond_are_listed_too(server: MemberServer, settings: Settings) -> None:
    server.fill(3000, first=at(50), step=timedelta(microseconds=1) / 4, prefix="same/")
    assert pids(pages(server, settings)) == server.pids


def test_an_instant_that_changes_while_it_is_paged_is_paged_again(server: MemberServer, settings: Settings) -> None:
    server.fill(1000, first=at(50), step=timedelta(0))
    everything = server.pids

    def shrink(number: int) -> None:
        if number in (4, 7, 9):
            for position in range(50):
                server.put(f"doi:10.5/{number * 50 + position:06d}", at(200_000))

    changes_before_each_listing(server, shrink)
    # Those that left the instant come in the next window; all that stayed must be here.
    assert pids(pages(server, settings)) >= {pid for pid in everything if int(pid[-6:]) // 50 not in (4, 7, 9)}


def test_a_total_that_falls_below_the_offset_is_no_error(server: MemberServer, settings: Settings) -> None:
    server.fill(300, first=at(50), step=timedelta(0))

    def fall(number: int) -> None:
        if number == 5:
            for position in range(250):
                server.put(f"doi:10.5/{position:06d}", at(200_000))

    changes_before_each_listing(server, fall)
    assert pids(pages(server, settings)) >= {f"doi:10.5/{position:06d}" for position in range(250, 300)}


def test_a_total_that_never_comes_to_rest_is_an_error_in_the_end(server: MemberServer, settings: Settings) -> None:
    server.fill(300, first=at(50), step=timedelta(0))
    changes_before_each_listing(server, lambda number: server.put(f"more/{number}", at(50)))
    with pytest.raises(Malformed, match="keeps changing: 5 passes"):
        list(pages(server, settings))


def test_a_pid_listed_twice_on_one_instant_does_not_keep_it_open_for_ever(settings: Settings) -> None:
    with member(lambda entries: entries + entries[:3]) as server:
        server.fill(300, first=at(50), step=timedelta(0))
        assert pids(pages(server, settings)) == server.pids


@pytest.mark.parametrize("habit", ["by the end of the pid", "backwards", "in no order"])
def test_a_member_that_does_not_list_by_date_is_listed_all_the_same(settings: Settings, habit: str) -> None:
    arrange = {
        "by the end of the pid": lambda entries: sorted(entries, key=lambda entry: entry[1][::-1]),
        "backwards": lambda entries: entries[::-1],
        "in no order": lambda entries: sorted(entries, key=lambda entry: zlib.crc32(entry[1].encode())),
    }[habit]
    with member(arrange) as server:
        server.fill(700, first=at(0))
        server.fill(250, first=at(50.0005), step=timedelta(0), prefix="same/")
        assert pids(pages(server, settings)) == server.pids


def test_a_member_that_seems_to_list_by_date_and_does_not_is_found_out(settings: Settings) -> None:
    def by_upload(entries: list[tuple[datetime, str]]) -> list[tuple[datetime, str]]:
        return sorted(entries, key=lambda entry: entry[1])

    with member(by_upload) as server:
        server.fill(300, first=at(1000), prefix="a/")  # uploaded first
        server.fill(50, first=at(500), prefix="b/")  # later, with the older dates they had elsewhere
        assert pids(pages(server, settings)) == server.pids


def test_disorder_is_seen_where_new_objects_hide_what_is_missing(settings: Settings) -> None:
    with member(lambda entries: entries[::-1]) as server:
        server.fill(300, first=at(0))

        def hide(number: int) -> None:
            if number == 2:
                server.fill(250, first=at(1000), prefix="new/")

        changes_before_each_listing(server, hide)
        assert pids(pages(server, settings)) == server.pids


def test_an_object_that_arrives_late_in_a_part_already_passed_is_seen_if_the_remainder_shrinks(
    server: MemberServer, settings: Settings
) -> None:
    server.fill(250, first=at(0))

    def late(number: int) -> None:
        if number == 2:
            server.put("late/1", at(5))
            server.put("doi:10.5/000240", at(200_000))

    changes_before_each_listing(server, late)
    assert "late/1" in pids(pages(server, settings))


@pytest.mark.parametrize("cap", [1, 7])
def test_a_member_may_give_fewer_than_asked_for(server: MemberServer, settings: Settings, cap: int) -> None:
    server.fill(30, first=at(0))
    server.fill(20, first=at(50), step=timedelta(0), prefix="same/")
    server.hook = lambda request: server._list(request._replace(query={**request.query, "count": str(cap)}))
    assert pids(pages(server, settings)) == server.pids


@pytest.mark.parametrize("status", [400, 501])
def test_a_member_that_knows_no_slicing_is_asked_for_everything_since(
    server: MemberServer, settings: Settings, status: int
) -> None:
    server.fill(3000, first=at(0))
    server.put("future", at(500_000))

    def unsliced(request: Request) -> Reply:
        if set(request.query) != {"fromDate"}:
            return failure(status, "InvalidRequest", "unsupported parameter")
        return member_server.listing(found := server.entries(at(-10), at(600_000)), 0, len(found))

    server.hook = unsliced
    assert pids(pages(server, settings)) == server.pids - {"future"}


def test_a_member_that_ignores_slicing_is_not_listed_twice(server: MemberServer, settings: Settings) -> None:
    server.fill(3000, first=at(0))

    def ignores(request: Request) -> Reply:
        return member_server.listing(found := server.entries(at(-10), at(100_000)), 0, len(found))

    server.hook = ignores
    assert [len(page.entries) for page in pages(server, settings)] == [3000]


def test_a_member_that_lists_a_part_and_knows_no_slicing_is_an_error(server: MemberServer, settings: Settings) -> None:
    server.fill(300, first=at(50), step=timedelta(0))

    def capped(request: Request) -> Reply:
        if set(request.query) != {"fromDate"}:
            return failure(400, "InvalidRequest", "unsupported parameter")
        return member_server.listing(server.entries(at(0), at(100))[:100], 0, 300)

    server.hook = capped
    with pytest.raises(Malformed, match="lists 100 of 300 objects, and gives no access to the others"):
        list(pages(server, settings))


def test_a_member_without_slicing_and_without_order_is_an_error(server: MemberServer, settings: Settings) -> None:
    server.fill(300, first=at(50))

    def capped(request: Request) -> Reply:
        if set(request.query) != {"fromDate"}:
            return failure(400, "InvalidRequest", "unsupported parameter")
        found = server.entries(instants.parse(request.query["fromDate"]), at(1000))
        return member_server.listing([*found[:99], found[-1]], 0, len(found))

    server.hook = capped
    with pytest.raises(Malformed, match="neither by date nor in slices"):
        list(pages(server, settings))


@pytest.mark.parametrize("end", ["an empty page", "a refusal"])
@pytest.mark.parametrize("habit", ["one a second", "on one instant", "in no order", "seven at most"])
@pytest.mark.parametrize("many", [0, 1, 100, 250])
def test_a_member_that_counts_more_objects_than_it_has_is_listed_and_both_numbers_are_told(
    settings: Settings, many: int, habit: str, end: str
) -> None:
    def arrange(entries: list[tuple[datetime, str]]) -> list[tuple[datetime, str]]:
        return sorted(entries, key=lambda entry: zlib.crc32(entry[1].encode())) if habit == "in no order" else entries

    with member(arrange) as server:
        server.fill(many, first=at(0), step=timedelta(seconds=habit != "on one instant"))
        server.hook = counting(server, 1, most=7 if habit == "seven at most" else 100, end=end)
        with MemberNode(server.member, settings) as client:
            listing = ListingPages(client, at(-10), at(100_000), settings, MemberPatience(client, settings))
            assert pids(iter(listing)) == server.pids
        counted, listed = map(int, re.findall(r"counts (\d+) objects and has (\d+), from 2", listing.difference)[0])
        assert counted == listed + 1 <= many + 1


def counting(server: MemberServer, more: int, *, most: int = 100, end: str = "an empty page") -> Hook:
    """A member that counts so many objects more than it has, whatever it is asked for."""

    def count(request: Request) -> Reply | None:
        if request.path[0] != "object":
            return None
        sliced, query = end != "no slicing", request.query
        if not sliced and len(query) > 1:
            return failure(400, "InvalidRequest", "unsupported parameter")
        until = instants.parse(query["toDate"]) if sliced else at(100_000)
        found, start = server.entries(instants.parse(query["fromDate"]), until), int(query.get("start", 0))
        if end == "a refusal" and start >= len(found) > 0:
            return failure(400, "InvalidRequest", f"start {start} of {len(found)}")
        size = min(int(query["count"]), most) if sliced else most
        return member_server.listing(found[start : start + size], start, len(found) + more)

    return count


def test_one_that_knows_no_slicing_and_counts_too_many_has_ended_where_it_lists_fewer_than_before(
    server: MemberServer, settings: Settings
) -> None:
    server.hook = counting(server, 1, end="no slicing")
    server.fill(250, first=at(0))
    assert pids(pages(server, settings)) == server.pids


def test_objects_that_are_counted_and_never_listed_hide_none_of_the_others(
    server: MemberServer, settings: Settings
) -> None:
    """Such as those that the service may not see: 40 of 500, each somewhere."""
    server.fill(500, first=at(0))
    hidden = {f"doi:10.5/{place:06d}" for place in range(7, 500, 12)}
    asked = list[Request]()

    def hide(request: Request) -> Reply:
        asked.append(request)
        since, until = (instants.parse(request.query[name]) for name in ("fromDate", "toDate"))
        found = server.entries(since, until)
        seen, start = [one for one in found if one[1] not in hidden], int(request.query["start"])
        return member_server.listing(seen[start : start + int(request.query["count"])], start, len(found))

    server.hook = hide
    assert pids(pages(server, settings)) == server.pids - hidden
    assert len(asked) < 30


def test_a_page_that_was_cut_is_not_taken_for_all_where_an_object_leaves_it_meanwhile(
    server: MemberServer, settings: Settings
) -> None:
    """It lists 10 of 11; the first one leaves before it is asked for what stands behind those ten."""
    server.fill(11, first=at(0))
    server.put("beyond", at(50))
    asked = list[Request]()

    def leave(request: Request) -> Reply:
        asked.append(request)
        if len(asked) == 2:
            server.put("doi:10.5/000000", at(200_000))
            server.put("beyond", at(200_001))
        size = str(min(10, int(request.query["count"])))
        return server._list(request._replace(query={**request.query, "count": size}))

    server.hook = leave
    assert pids(pages(server, settings)) >= {f"doi:10.5/{place:06d}" for place in range(1, 11)}


def test_the_first_refusal_is_the_one_that_is_told(server: MemberServer, settings: Settings) -> None:
    server.hook = lambda request: failure(400 if "start" in request.query else 500, "Name", str(len(request.query)))
    with pytest.raises(MemberRefused, match="Name: 4"):
        list(pages(server, settings))


@pytest.mark.parametrize(
    ("ignored", "told"),
    [
        ({"fromDate": "2000-01-01"}, "nor respects fromDate"),
        ({"fromDate": "2000-01-01", "toDate": "2100-01-01", "start": "0"}, "the same 100 objects"),
    ],
    ids=["ignores fromDate", "ignores everything"],
)
def test_a_member_that_lists_the_same_page_for_ever_is_an_error(
    server: MemberServer, settings: Settings, ignored: dict[str, str], told: str
) -> None:
    server.fill(300, first=at(0))
    server.hook = lambda request: server._list(request._replace(query={**request.query, **ignored}))
    with pytest.raises(Malformed, match=told):
        list(pages(server, settings))


@pytest.mark.parametrize("number", [1, 3, 150, 300])
@pytest.mark.parametrize("step", [1, 0], ids=["one a second", "on one instant"])
def test_entries_that_cannot_be_read_hide_none_of_the_others(
    server: MemberServer, settings: Settings, number: int, step: int
) -> None:
    server.fill(300, first=at(0), step=timedelta(seconds=step))
    bad = {f"doi:10.5/{place:06d}" for place in range(90, 90 + number)}

    def spoil(request: Request) -> Reply:
        body = server._list(request).body
        assert isinstance(body, bytes)
        infos = body.decode().split("<objectInfo>")
        spoilt = [one.replace("Modified>2", "Modified>x") if any(pid in one for pid in bad) else one for one in infos]
        return Reply("<objectInfo>".join(spoilt).encode())

    server.hook = spoil
    found = list(pages(server, settings))
    assert {entry.pid for page in found for entry in page.entries} == server.pids - bad
    assert {pid for page in found for pid, _ in page.unreadable} == server.pids & bad


@pytest.mark.parametrize("step", [1, 0], ids=["one a second", "on one instant"])
def test_entries_that_are_no_xml_hide_none_of_the_others(server: MemberServer, settings: Settings, step: int) -> None:
    """The first, the last, and two beside each other; one is spoilt in the answer alone that has it."""
    server.fill(300, first=at(0), step=timedelta(seconds=step))
    bad = {f"doi:10.5/{place:06d}": junk for place, junk in ((0, b"\1"), (120, b"&#2;"), (121, b"\xff"), (299, b"<"))}
    asked = list[str]()

    def spoil(request: Request) -> Reply:
        asked.append(request.query["count"])
        body = server._list(request).body
        assert isinstance(body, bytes)
        for pid, junk in bad.items():
            body = body.replace(pid.encode(), pid.encode() + junk)
        return Reply(body)

    server.hook = spoil
    found = list(pages(server, settings))
    assert {entry.pid for page in found for entry in page.entries} == server.pids - set(bad)
    assert {reason for page in found for _, reason in page.unreadable if "not well-formed" in reason}
    assert len(asked) < 200
    server.hook = lambda request: Reply(b"<objectList total='300'>" + b"<objectInfo/>" * 99 + b"<broken")
    with pytest.raises(Malformed, match="not well-formed"):
        list(pages(server, settings))
    server.hook = lambda request: Reply(b"<objectList total='300'>\1</objectList>")
    with pytest.raises(Malformed, match="not well-formed"):
        list(pages(server, settings))


def test_a_page_that_takes_too_long_is_asked_for_in_smaller_parts(server: MemberServer, settings: Settings) -> None:
    server.fill(250, first=at(0))
    over, sizes = threading.Event(), list[int]()

    def slow(request: Request) -> None:
        sizes.append(int(request.query["count"]))
        if sizes[-1] > 30:
            over.wait(20)

    server.hook = slow
    assert pids(pages(server, settings.model_copy(update=IMPATIENT))) == server.pids
    over.set()
    assert [size for size in sizes if size > 1][:4] == [100, 50, 25, 25]


def test_a_member_that_hangs_over_one_entry_is_asked_no_more(server: MemberServer, settings: Settings) -> None:
    over, asked = threading.Event(), list[Request]()

    def hang(request: Request) -> None:
        if request.path[0] == "object":
            asked.append(request)
            over.wait(20)

    server.hook = hang
    with pytest.raises(MemberTimedOut):
        list(pages(server, settings.model_copy(update=IMPATIENT)))
    over.set()
    assert len(asked) == 2


@pytest.mark.parametrize(("failures", "ends"), [(1, False), (2, True)])
def test_a_listing_that_fails_is_asked_for_again(
    server: MemberServer, settings: Settings, failures: int, ends: bool
) -> None:
    server.fill(250, first=at(0))
    asked = list[Request]()

    def fail(request: Request) -> Reply | None:
        asked.append(request)
        return failure(500, "ServiceFailure", "") if len(asked) <= failures else None

    server.hook = fail
    if ends:
        with pytest.raises(Failing):
            list(pages(server, settings))
    else:
        assert pids(pages(server, settings)) == server.pids


def test_a_window_without_length_asks_nothing(server: MemberServer, settings: Settings) -> None:
    seen = changes_before_each_listing(server, lambda number: None)
    with MemberNode(server.member, settings) as client:

        def made(since: datetime, until: datetime) -> ListingPages:
            return ListingPages(client, since, until, settings, MemberPatience(client, settings))

        assert list(made(at(5), at(5))) == list(made(at(6), at(5))) == []
        assert [page.total for page in made(at(5), at(5) + MS)] == [0]
    assert len(seen) == 1
