"""Events are appended once each, under the fence noted last, and none is lost."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.batches import Failure, ItemConditions, ItemLost, Items, Report, UnknownItem
from tests.harness.long import long
from tests.tasks.batches.conftest import Store, finished_at_once, new_event
from tests.tasks.conftest import IN_BOTH, at

PAIRS = long(40, 1_000)


@IN_BOTH
def test_an_item_is_registered_once_and_known_by_its_batch_and_round_trip(items: Items) -> None:
    assert items.register("B400022028241-RT12", directory="/in/B400022028241-RT12", priority=3)
    assert not items.register("B400022028241-RT12", directory="/elsewhere")
    found = items.item("B400022028241-RT12")
    assert (found.batch, found.round_trip, found.priority, found.directory, found.revision) == (
        "B400022028241", 12, 3, "/in/B400022028241-RT12", 1,
    )  # fmt: skip
    items.register("an edition", type="edition")
    assert (items.item("an edition").batch, items.item("an edition").round_trip) == ("an edition", None)
    with pytest.raises(UnknownItem):
        items.item("B1-RT1")
    for name in ("", "a\nb", "x" * 201, "ä" * 101, "\udcff"):
        with pytest.raises(ValueError, match="item"):
            items.register(name)


@IN_BOTH
def test_an_append_that_is_asked_again_stores_nothing_more(store: Store) -> None:
    store.add("B1-RT1")
    event = new_event("B1-RT1", "A", report=Report.of([Failure("p1", "hole", "A", "a hole", "x")]), changed=True)
    store.items.begin("A", "B1-RT1", fence=event.fence)
    first = store.items.append(event)
    assert store.items.append(event) == first
    (found,) = store.items.events("B1-RT1")
    assert (found.id, found.report, found.agent, found.started) == (first, event.report, "A-1.0", at(1))
    assert store.items.item("B1-RT1").revision == 2, "its change counts once, too"


@IN_BOTH
def test_an_event_with_a_stale_fence_is_refused(store: Store) -> None:
    store.add("B1-RT1")
    store.items.begin("A", "B1-RT1", fence=5)
    store.items.begin("A", "B1-RT1", fence=8)
    for fence in (5, 6, 9):
        with pytest.raises(ItemLost):
            store.items.append(new_event("B1-RT1", "A", fence=fence))
    with pytest.raises(ItemLost):
        store.items.begin("A", "B1-RT1", fence=5)
    with pytest.raises(ItemLost):
        store.items.append(new_event("B1-RT1", "B", fence=8))
    assert store.live("B1-RT1") == []
    store.items.append(new_event("B1-RT1", "A", fence=8))
    assert store.live("B1-RT1") == ["A"]


@IN_BOTH
def test_of_two_jobs_that_believe_they_hold_an_item_one_stores_its_event(store: Store) -> None:
    """The earlier one comes at any moment while the later one looks whether there is an event already."""
    for number in range(30):
        item = f"B{number}-RT1"
        store.add(item)
        store.items.begin("A", item, fence=1)
        meet, stored = threading.Barrier(2), []

        def late(item: str = item, meet: threading.Barrier = meet, stored: list[int] = stored) -> None:
            meet.wait()
            try:
                store.items.append(new_event(item, "A", fence=1))
                stored.append(1)
            except ItemLost:
                pass

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(late)
            meet.wait()
            if store.items.begin("A", item, fence=2, wanted=ItemConditions(future=["A"])):
                store.items.append(new_event(item, "A", fence=2))
                stored.append(2)
            done.result()
        assert len(stored) == 1
        assert store.live(item) == ["A"]


@IN_BOTH
def test_two_components_finish_an_item_at_once_and_nothing_is_lost(store: Store) -> None:
    """So many pairs show in PostgreSQL where an append does not have its item alone."""
    names = [f"B{number}-RT1" for number in range(PAIRS)]
    store.fill(names)
    finished_at_once(store.items, names, "A", "B")
    assert [sorted(store.live(name)) for name in names] == [["A", "B"]] * PAIRS
    assert len(store.items.query(ItemConditions(past=["A", "B"])).items) == PAIRS


@IN_BOTH
def test_a_component_that_changes_its_item_does_not_set_itself_off_again(store: Store) -> None:
    store.add("B1-RT1")
    store.happen("B1-RT1", "A", changed=True)
    assert [one.revision for one in store.items.events("B1-RT1")] == [2] == [store.items.item("B1-RT1").revision]
    assert not store.items.query(ItemConditions(old=["A"])).items
    store.happen("B1-RT1", "B", changed=True)
    assert store.items.query(ItemConditions(old=["A"])).items, "what another one changed is news"
    assert not store.items.query(ItemConditions(old=["B"])).items


@IN_BOTH
@pytest.mark.parametrize("changed", [True, False])
def test_what_others_changed_while_a_child_worked_makes_its_event_old(store: Store, changed: bool) -> None:
    store.add("B1-RT1")
    event = new_event("B1-RT1", "A", changed=changed)
    store.items.begin("A", "B1-RT1", fence=event.fence)
    store.items.touch("B1-RT1", directory="/elsewhere")
    store.items.append(event)
    assert [one.id for one in store.items.query(ItemConditions(old=["A"])).items] == ["B1-RT1"]
    assert store.items.item("B1-RT1").directory == "/elsewhere"


@pytest.mark.parametrize("given", ["a text", None, Failure(Path("p"), "t", "c", "d"), Failure("p", "t", "c", b"d")])  # type: ignore[arg-type]
def test_a_report_is_made_of_failures_whose_parts_are_texts(given: Any) -> None:
    """Of others the store could keep nothing, nor read it again."""
    with pytest.raises(TypeError, match=r"(is a text, not|returns failures, not) "):
        Report.of([Failure("p", "t", "c", "d"), given], most=1)


@IN_BOTH
def test_an_orphan_is_kept_once_and_is_no_event(store: Store) -> None:
    store.add("B1-RT1")
    event = replace(new_event("B1-RT1", "A"), report=Report.of([Failure("p", "hole", "A", "a hole")]))
    for _ in range(2):
        store.items.keep_orphan(event)
    (kept,) = store.items.orphans("B1-RT1")
    assert (kept["component"], kept["fence"], Report.from_json(str(kept["report"])).found) == ("A", event.fence, 1)
    assert store.live("B1-RT1") == []
