"""Each change of an object is one event, numbered in the order of the commits."""

from datetime import datetime
from threading import Event, Thread

import pytest
from sqlalchemy import event as sql

from tasks.catalog.catalog import Catalog, Fetched, Superseded
from tasks.catalog.events import EventsForgotten, ObjectEvent, ObjectEvents
from tasks.catalog.former import purge
from tasks.catalog.sightings import Sightings
from tests.tasks.catalog.test_catalog import M, fetched
from tests.tasks.conftest import IN_BOTH, at, in_threads

pytestmark = IN_BOTH
OTHER = "urn:node:other"


@pytest.fixture
def events(catalog: Catalog) -> ObjectEvents:
    return ObjectEvents(catalog.engine)


def kinds(events: list[ObjectEvent]) -> list[tuple[int, str, str]]:
    return [(event.number, event.pid, event.kind) for event in events]


def archived(item: Fetched) -> Fetched:
    return item._replace(metadata=item.metadata._replace(archived=True))


def test_metadata_that_says_the_same_in_another_form_makes_no_event_and_other_words_do(
    catalog: Catalog, events: ObjectEvents
) -> None:
    [item] = fetched(["a"])
    same = item.metadata.document.replace(b"d1:", b"ns7:").replace(b":d1", b":ns7").replace(b"<size>", b"\n  <size>")
    for text in (item.metadata.document, same, same.replace(b"CN=Loopback", b"CN=Another")):
        catalog.store(M, fence=1, fetched=[item._replace(metadata=item.metadata._replace(document=text))], now=at(9))
    assert kinds(events.after(0)) == [(1, "a", "new"), (2, "a", "changed")]


def test_what_becomes_of_an_object_is_an_event_and_what_leaves_it_as_it_is_makes_none(
    catalog: Catalog, events: ObjectEvents
) -> None:
    def gone(*pids: str) -> None:
        Sightings(catalog.engine).note_checked(M, missing=pids, checked=pids, began=at(9), fence=1, now=at(9))

    catalog.store(M, fence=1, fetched=fetched(["a", "b"]), now=at(9))
    catalog.store(M, fence=1, fetched=fetched(["a", "b"]), now=at(9))  # a page that comes again
    catalog.store(M, fence=1, fetched=[*fetched(["a"], 5), archived(fetched(["c"])[0])], now=at(9))
    catalog.store(M, fence=1, fetched=[archived(fetched(["a"], 6)[0])], now=at(9))
    catalog.store(M, fence=1, fetched=[archived(fetched(["a"], 7)[0])], now=at(9))
    gone("b", "never-there")
    gone("b")
    catalog.store(M, fence=1, fetched=fetched(["b"]), now=at(9))
    catalog.store(OTHER, fence=1, fetched=fetched(["b"]), now=at(9))
    gone("c")
    purge(catalog, M, fence=2, check=lambda: None)
    assert kinds(events.after(0)) == [
        (1, "a", "new"),
        (2, "b", "new"),
        (3, "a", "changed"),
        (4, "c", "archived"),
        (5, "a", "archived"),
        (6, "a", "changed"),
        (7, "b", "gone"),
        (8, "b", "new"),
        (9, "b", "new"),
        (10, "c", "gone"),
        (11, "a", "gone"),
        (12, "b", "gone"),
    ]
    assert [one.member for one in events.after(0) if one.number in (8, 9)] == [M, OTHER]


def test_what_was_rolled_back_has_no_number_and_leaves_no_gap(catalog: Catalog, events: ObjectEvents) -> None:
    catalog.store(M, fence=5, fetched=fetched(["a"]), now=at(9))
    broken = fetched(["b"])[0]
    with pytest.raises(Superseded):
        catalog.store(M, fence=4, fetched=fetched(["late"]), now=at(9))
    with pytest.raises(Exception, match=r"(?i)too large|out of range"):
        catalog.store(M, fence=5, fetched=[broken._replace(metadata=broken.metadata._replace(size=2**70))], now=at(9))

    @sql.listens_for(catalog.engine, "commit")
    def die(connection: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        catalog.store(M, fence=5, fetched=fetched(["c"]), now=at(9))
    sql.remove(catalog.engine, "commit", die)
    catalog.store(M, fence=5, fetched=fetched(["d"]), now=at(9))
    assert kinds(events.after(0)) == [(1, "a", "new"), (2, "d", "new")]


def test_whoever_reads_a_number_while_many_members_are_harvested_has_read_all_before_it(
    catalog: Catalog, events: ObjectEvents
) -> None:
    over, read = Event(), list[int]()

    def follow() -> None:
        while not over.is_set() or len(read) < events.last():
            read.extend(event.number for event in events.after(len(read)))

    def harvest(member: str) -> None:
        for page in range(10):
            catalog.store(member, fence=1, fetched=fetched([f"{page}-{number}" for number in range(7)]), now=at(9))

    reader = Thread(target=follow)
    reader.start()
    in_threads(harvest, [f"urn:node:{number}" for number in range(6)])
    over.set()
    reader.join(60)
    assert read == list(range(1, 421))


def due(events: ObjectEvents, before: datetime | None = None, ahead: int = 100) -> list[int]:
    return [event.number for event in events.due(before or at(0), ahead)]


def test_of_each_pid_the_first_event_is_due_until_it_is_delivered(catalog: Catalog, events: ObjectEvents) -> None:
    for member, pids, seconds in ((M, ["a", "b"], 0), (OTHER, ["a"], 0), (M, ["a"], 5)):
        catalog.store(member, fence=1, fetched=fetched(pids, seconds), now=at(9))
    assert due(events) == [1, 2]
    assert due(events, ahead=1) == [1]
    events.sent([1], at(20))
    assert (due(events), due(events, at(21)), due(events, at(21), 1)) == ([2], [1, 2], [1])
    first = events.after(0)[0]
    assert events.delivered(1, "of a lost database", at(30)) is False
    assert due(events, at(21)) == [1, 2]
    assert [events.delivered(1, first.id, at(30 + again)) for again in range(2)] == [True, True]
    assert events.after(0)[0].delivered == at(30)
    assert due(events) == [2, 3]
    for event in events.after(2):
        events.delivered(*event[:2], at(40))
    assert due(events) == [2]
    assert events.delivered(*events.after(1)[0][:2], at(40)) is False


def test_old_events_go_and_whoever_missed_them_hears_of_it(catalog: Catalog, events: ObjectEvents) -> None:
    for number in range(5):
        catalog.store(M, fence=1, fetched=fetched([f"p{number}"]), now=at(number))
    for event in events.after(0):
        if event.number != 3:
            events.delivered(*event[:2], at(9))
    assert events.forget(at(3.5), undelivered=False) == 2
    assert [event.number for event in events.after(None)] == [3, 4, 5]
    assert events.forget(at(3.5), undelivered=True) == 2
    assert events.forget(at(3.5), undelivered=True) == 0
    assert [event.number for event in events.after(4)] == [5]
    for number, says in ((0, "after 0 are no longer kept.*events after 5"), (3, "no longer kept"), (6, "backup")):
        with pytest.raises(EventsForgotten, match=says):
            events.after(number)
    assert events.forget(at(99), undelivered=True) == 1
    assert (events.after(5), events.after(None)) == ([], [])
    catalog.store(M, fence=1, fetched=fetched(["late"]), now=at(9))
    assert kinds(events.after(5)) == [(6, "late", "new")]
