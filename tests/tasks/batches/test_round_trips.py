"""Deliveries of one batch, and its approval."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tasks.batches import ItemConditions, ItemConflict, Items, NewEvent
from tasks.batches.round_trips import approve, deliver
from tests.tasks.batches.conftest import Store, new_event
from tests.tasks.conftest import IN_BOTH

RECEIVED, STOPPED, FLAGGED, APPROVED = "Data_Received", "Manually_stopped", "Manual_QA_Flagged", "Roundtrip_Approved"


def arrive(items: Items, number: int, identity: str = "") -> str:
    return deliver(items, f"B1-RT{number}", directory=f"/in/B1-RT{number}", identity=identity or f"file {number}")


@IN_BOTH
def test_a_delivery_stops_the_round_trips_before_it(store: Store) -> None:
    assert [arrive(store.items, number) for number in (1, 2, 10)] == ["received"] * 3
    assert store.live("B1-RT1") == store.live("B1-RT2") == [RECEIVED, STOPPED]
    assert store.live("B1-RT10") == [RECEIVED]
    assert [one.id for one in store.items.round_trips("B1")] == ["B1-RT1", "B1-RT2", "B1-RT10"]
    assert store.items.item("B1-RT10").directory == "/in/B1-RT10"


@IN_BOTH
def test_a_delivery_fails_where_a_higher_round_trip_is_there(store: Store) -> None:
    arrive(store.items, 3)
    assert arrive(store.items, 2) == "failed"
    assert store.live("B1-RT2") == ["-" + RECEIVED]
    assert store.live("B1-RT3") == [RECEIVED]


@IN_BOTH
def test_a_delivery_of_an_approved_batch_is_received_and_stopped(store: Store) -> None:
    arrive(store.items, 1)
    store.add("B1-RT1", APPROVED)
    assert arrive(store.items, 2) == "received and stopped"
    assert store.live("B1-RT1") == [RECEIVED, APPROVED]
    assert store.live("B1-RT2") == [RECEIVED, STOPPED]


@IN_BOTH
def test_a_delivery_is_taken_in_once_and_a_later_one_of_its_name_once_more(store: Store) -> None:
    assert [arrive(store.items, 1), arrive(store.items, 1)] == ["received", "known"]
    assert store.items.item("B1-RT1").revision == 1
    assert arrive(store.items, 1, "another file") == "received"
    assert store.live("B1-RT1") == [RECEIVED, RECEIVED]
    assert store.items.item("B1-RT1").revision == 2, "components that ask for what is old see it"


@IN_BOTH
def test_of_round_trips_that_come_at_once_the_highest_goes_on(store: Store) -> None:
    for number in range(10):
        meet = threading.Barrier(2)

        def arrives(trip: str, meet: threading.Barrier = meet) -> None:
            meet.wait()
            deliver(store.items, trip, directory="/in", identity="file")

        trips = [f"B{number}-RT1", f"B{number}-RT2"]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(arrives, trips))
        assert [store.live(trip) == [RECEIVED] for trip in trips] == [False, True]


@IN_BOTH
def test_a_delivery_stops_a_round_trip_while_a_component_finishes_it(store: Store) -> None:
    """In the same instant, again and again; each of the two events counts."""
    for number in range(10):
        name, meet = f"B{number}-RT1", threading.Barrier(2)
        store.add(name)
        event = new_event(name, "A")
        store.items.begin("A", name, fence=event.fence)

        def finish(event: NewEvent = event, meet: threading.Barrier = meet) -> None:
            meet.wait()
            store.items.append(event)

        with ThreadPoolExecutor(1) as pool:
            finished = pool.submit(finish)
            meet.wait()
            deliver(store.items, f"B{number}-RT2", directory="/in", identity="file")
            finished.result()
        assert sorted(store.live(name)) == ["A", STOPPED]
    assert len(store.items.query(ItemConditions(past=["A", STOPPED])).items) == 10


@pytest.mark.parametrize("name", ["B1", "B1-RT", "B1-RTx", "-RT1", "B1-RT1 "])
def test_a_name_without_a_round_trip_is_no_delivery(items: Items, name: str) -> None:
    with pytest.raises(ValueError, match="round trip"):
        deliver(items, name, directory="/in", identity="1")


@IN_BOTH
def test_the_highest_flagged_round_trip_is_approved(store: Store) -> None:
    for number in (1, 2, 3, 4, 5):
        store.add(f"B1-RT{number}", *([FLAGGED] if number in (1, 2, 4) else []))
    assert approve(store.items, "B1", by="ann") == {
        "B1-RT1": "failed", "B1-RT2": "failed", "B1-RT4": "approved", "B1-RT5": "failed and stopped",
    }  # fmt: skip
    assert [store.live(f"B1-RT{number}") for number in (1, 2, 3, 4, 5)] == [
        [FLAGGED, "-" + APPROVED], [FLAGGED, "-" + APPROVED], [], [FLAGGED, APPROVED], ["-" + APPROVED, STOPPED],
    ]  # fmt: skip
    assert store.items.events("B1-RT4")[-1].agent == "operator-ann"
    with pytest.raises(ItemConflict, match="B1-RT4 is approved already"):
        approve(store.items, "B1", by="ann")


def test_nothing_is_approved_where_nothing_is_flagged(store: Store) -> None:
    store.add("B1-RT1", "-" + FLAGGED)
    with pytest.raises(ItemConflict, match="no round trip"):
        approve(store.items, "B1", by="ann")
    assert store.live("B1-RT1") == ["-" + FLAGGED]
