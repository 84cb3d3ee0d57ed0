from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from sqlalchemy.exc import DataError

from examples.demo.member_server import system_metadata
from tasks.catalog.catalog import Catalog, Cursor, Failed, Fetched, ObjectToFetch, Superseded
from tasks.catalog.former import former, purge
from tasks.catalog.sightings import Sightings
from tasks.member_node.objects import read_system_metadata
from tasks.settings import Settings
from tests.harness.warm import at_once, start
from tests.tasks.conftest import IN_BOTH, at, in_threads

pytestmark = IN_BOTH

M = "urn:node:mnA"


def fetched(pids: Sequence[str], seconds: float = 0) -> list[Fetched]:
    return [Fetched(ObjectToFetch(pid, at(seconds)), read_system_metadata(document(pid, seconds), pid)) for pid in pids]


def document(pid: str, seconds: float) -> bytes:
    body = system_metadata(pid, at(seconds)).body
    assert isinstance(body, bytes)
    return body


def failed(pid: str, seconds: float = 0) -> Failed:
    return Failed(ObjectToFetch(pid, at(seconds)), "no such thing", 404)


def dates(catalog: Catalog, pids: Sequence[str]) -> dict[str, set[datetime]]:
    return {pid: known.dates for pid, known in catalog.known(M, pids).items()}


def test_a_page_and_its_cursor_are_there_together(catalog: Catalog) -> None:
    cursor = Cursor("increment", at(-60), at(1), at(3))
    catalog.store(M, fence=1, fetched=fetched(["a", "ü/?#%"]), cursor=cursor, now=at(9))
    assert catalog.cursor(M, "increment") == cursor
    assert catalog.cursor(M, "complete") is None
    assert [row["pid"] for row in catalog.objects(M)] == ["a", "ü/?#%"]
    assert b"systemMetadata" in (catalog.document(M, "a") or b"")
    assert dates(catalog, ["a", "b"]) == {"a": {at(0)}}
    assert catalog.objects("urn:node:other") == []


def test_a_stale_fence_writes_nothing_at_all(catalog: Catalog) -> None:
    catalog.store(M, fence=5, fetched=fetched(["a"]), cursor=Cursor("increment", at(0), at(1), at(3)), now=at(9))
    late = Cursor("increment", at(0), at(2), at(3))
    with pytest.raises(Superseded) as refused:
        catalog.store(M, fence=4, fetched=fetched(["a", "b"], 7), failed=[failed("c")], cursor=late, now=at(9))
    assert (refused.value.member, refused.value.fence, refused.value.seen) == (M, 4, 5)
    with pytest.raises(Superseded):
        catalog.finish(M, "increment", fence=4)
    with pytest.raises(Superseded):
        catalog.ran(M, fence=4, now=at(9), outcome="failed")
    assert dates(catalog, ["a", "b"]) == {"a": {at(0)}}
    assert catalog.failed(M) == []
    assert catalog.cursor(M, "increment") == Cursor("increment", at(0), at(1), at(3))
    assert catalog.summary(M).outcome is None


def test_the_same_fence_may_write_again_and_other_members_have_their_own(catalog: Catalog) -> None:
    for _ in range(2):
        catalog.store(M, fence=5, fetched=fetched(["a"]), now=at(9))
    catalog.store("urn:node:mnB", fence=1, fetched=fetched(["a"]), now=at(9))
    assert catalog.summary(M).objects == catalog.summary("urn:node:mnB").objects == 1


def test_a_broken_row_takes_its_whole_page_with_it(catalog: Catalog) -> None:
    good, bad = fetched(["a", "b"])
    broken = bad._replace(metadata=bad.metadata._replace(size=2**70))
    with pytest.raises((OverflowError, DataError)):
        catalog.store(M, fence=1, fetched=[good, broken], cursor=Cursor("increment", at(0), at(1), at(3)), now=at(9))
    assert catalog.objects(M) == []
    assert catalog.cursor(M, "increment") is None


def test_a_failure_waits_longer_each_time_and_is_new_only_once(catalog: Catalog) -> None:
    now, delays = at(0), []
    for number in range(1, 15):
        assert bool(catalog.store(M, fence=1, failed=[failed("a")], now=now)) == (number == 1)
        [failure] = catalog.failed(M)
        assert (failure.tries, failure.reason, failure.status, failure.failed_at) == (number, "no such thing", 404, now)
        delays.append((failure.next_try - now).total_seconds())
        assert catalog.failing(M, ["a"]) == {"a": (at(0), failure.next_try, failure.failed_at)}
        assert catalog.due(M, failure.next_try - timedelta(seconds=1), 10) == []
        now = failure.next_try
        assert catalog.due(M, now, 10) == [ObjectToFetch("a", at(0))]
    assert delays[:4] == [60, 120, 240, 480]
    assert delays[-1] == 86400
    catalog.store(M, fence=1, fetched=fetched(["a"]), now=now)
    assert catalog.failed(M) == []


def test_the_newest_object_is_that_with_the_greatest_date_before_an_instant(catalog: Catalog) -> None:
    for pid, seconds in (("a", 0.000001), ("b", 5.999999), ("c", 60)):
        catalog.store(M, fence=1, fetched=fetched([pid], seconds), now=at(99))
    assert catalog.newest(M, at(60)) == at(5.999999)
    assert catalog.newest(M, at(0)) is None


def test_more_pids_than_one_query_can_name(catalog: Catalog) -> None:
    pids = [f"p{number}" for number in range(1201)]
    catalog.store(M, fence=1, fetched=fetched(pids), now=at(0))
    assert len(catalog.known(M, pids)) == 1201
    assert [row["pid"] for row in catalog.objects(M, after="p998", limit=2)] == ["p999"]


def test_many_processes_make_and_use_one_catalog(settings: Settings) -> None:
    imports = (
        "from tasks.catalog.catalog import Catalog; from tasks.settings import Settings\n"
        "from tests.tasks.catalog.test_catalog import M, fetched; from tests.tasks.conftest import at\n"
    )
    code = (
        "catalog = Catalog(Settings(database_url=sys.argv[1]))\n"
        "for n in range(10): catalog.store(M, fence=1, fetched=fetched([f'{number}-{n}']), now=at(0))\n"
    )
    assert start(["-c", at_once(4, imports, code), settings.database]).wait(60) == 0
    assert Catalog(settings).summary(M).objects == 40


def test_of_two_holders_at_once_the_greater_fence_has_the_last_word(catalog: Catalog) -> None:
    refused: list[int] = []

    def write(fence: int) -> None:
        try:
            for number in range(20):
                catalog.store(M, fence=fence, fetched=fetched(["a"], fence * 1000 + number), now=at(0))
        except Superseded:
            refused.append(fence)

    in_threads(write, (3, 1, 2))
    assert dates(catalog, ["a"]) == {"a": {at(3019)}}
    assert 3 not in refused


def test_one_identifier_that_cannot_be_kept_takes_nothing_with_it(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    [good] = fetched(["good"])
    digits = "".join(str(number**3) for number in range(1, 1000))
    bad = [digits[:3000], digits[:9000], "a\0b", "\udcff"]
    strange = [good._replace(wanted=ObjectToFetch(pid, at(0)), metadata=good.metadata._replace(pid=pid)) for pid in bad]
    position = Cursor("complete", at(0), at(1), at(2))
    catalog.store(M, fence=1, fetched=[good, *strange], failed=[failed(pid) for pid in bad], cursor=position, now=at(9))
    Sightings(catalog.engine).saw(M, ["good", *bad], at(2), fence=1)
    assert [row["pid"] for row in catalog.objects(M)] == ["good"]
    assert (catalog.failed(M), catalog.cursor(M, "complete")) == ([], position)
    assert Sightings(catalog.engine).seen(M, at(2)) == 1
    assert "cannot be stored: its identifier of 3000 characters" in caplog.text


def test_a_purge_that_breaks_off_is_ended_by_the_next_and_no_late_writer_brings_anything_back(catalog: Catalog) -> None:
    pids, other = [f"p{number:04d}" for number in range(600)], "urn:node:other"
    for member in (M, other):
        cursor = Cursor("increment", at(-60), at(1), at(3))
        catalog.store(member, fence=1, fetched=fetched(pids), failed=[failed("f")], cursor=cursor, now=at(9))
        Sightings(catalog.engine).note_checked(member, missing=["p0599"], checked=pids, began=at(5), fence=1, now=at(9))
    assert former(catalog, [other]) == [M]

    checks = iter([None, KeyboardInterrupt])

    def check() -> None:
        if error := next(checks, None):
            raise error

    with pytest.raises(KeyboardInterrupt):
        purge(catalog, M, fence=3, check=check)
    assert catalog.cursor(M, "increment") is None
    summary = catalog.summary(M)
    assert (summary.objects, summary.gone, summary.failed) == (99, 1, 0)
    assert purge(catalog, M, fence=4, check=check) == 100
    with pytest.raises(Superseded):
        catalog.store(M, fence=2, fetched=fetched(["late"]), now=at(9))
    assert former(catalog, []) == [other]
    summary = catalog.summary(other)
    assert (summary.objects, summary.gone, summary.failed) == (599, 1, 1)
    assert catalog.cursor(other, "increment")
