"""Operators repair the events of an item: by dependency, with a history, and never under somebody's hands."""

from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace

import pytest

from tasks.batches import Item, ItemConditions, ItemConflict, ItemLost, UnknownItem
from tasks.batches.repair import Repair
from tests.tasks.batches.conftest import Store, new_event
from tests.tasks.conftest import IN_BOTH

# A, then B and C, each after A; D after B; E after C and D.
NEEDS = {"A": {"In"}, "B": {"A"}, "C": {"A"}, "D": {"B"}, "E": {"C", "D"}}
ALL = ["In", "A", "B", "C", "D", "E"]


@pytest.fixture
def repair(store: Store) -> Repair:
    return Repair(store.items, {kind: frozenset(of) for kind, of in NEEDS.items()}, lambda item: None, "ann", "why not")


@IN_BOTH
@pytest.mark.parametrize(
    ("events", "kind", "left"),
    [
        (ALL, "B", ["In", "A", "C"]),
        (ALL, "C", ["In", "A", "B", "D"]),
        (ALL, "A", ["In"]),
        (ALL, "E", ["In", "A", "B", "C", "D"]),
        (["In", "A", "-B", "C"], None, ["In", "A", "C"]),
        (["In", "A", "-B", "-C"], None, ["In", "A", "-C"]),
        (["In", "A", "-C", "-B"], None, ["In", "A", "-B"]),
        (["In", "A", "-B", "-C", "-B"], None, ["In", "A", "-B", "-B"]),
        (["In", "A", "-B", "-C", "-D"], None, ["In", "A", "-C"]),
        (["In", "-A", "A", "-B"], None, ["In", "-A", "A"]),
    ],
)
def test_a_restart_takes_out_what_came_from_there(
    store: Store, repair: Repair, events: list[str], kind: str | None, left: list[str]
) -> None:
    store.add("B1-RT1", *events)
    told = [one.type for one in repair.restart("B1-RT1", kind, dry_run=True)]
    assert store.live("B1-RT1") == events
    assert [one.type for one in repair.restart("B1-RT1", kind)] == told
    assert store.live("B1-RT1") == left
    history = store.items.events("B1-RT1", history=True)
    assert len(history) == len(events)
    assert {(one.removed_by, one.removed_why) for one in history if one.removed} == {("ann", "why not")}


@pytest.mark.parametrize(
    ("events", "kind", "says"),
    [
        (["In", "A"], None, "has no failure of a component"),
        (["-In"], None, "has no failure of a component"),
        (["In", "A"], "B", "no event B"),
        (["In", "A"], "In", "no component makes In"),
        (["In", "-A", "Manually_stopped"], None, "is stopped"),
    ],
)
def test_a_restart_that_makes_no_sense_is_refused(
    store: Store, repair: Repair, events: list[str], kind: str | None, says: str
) -> None:
    store.add("B1-RT1", *events)
    with pytest.raises(ItemConflict, match=says):
        repair.restart("B1-RT1", kind)
    assert store.live("B1-RT1") == events
    with pytest.raises(UnknownItem):
        repair.restart("B2-RT1")


@IN_BOTH
def test_work_from_before_a_repair_stores_nothing(store: Store, repair: Repair) -> None:
    store.add("B1-RT1", "In", "-A")
    store.items.begin("B", "B1-RT1", fence=10**6)
    repair.restart("B1-RT1")
    with pytest.raises(ItemLost):
        store.items.append(new_event("B1-RT1", "B", fence=10**6))
    with pytest.raises(ItemLost):
        store.items.begin("B", "B1-RT1", fence=10**6)
    assert store.items.begin("A", "B1-RT1", fence=10**6 + 1, wanted=ItemConditions(past=["In"], future=["A"]))


@IN_BOTH
def test_a_child_that_begins_while_a_repair_is_under_way_sees_the_repaired_item(store: Store, repair: Repair) -> None:
    store.add("B1-RT1", "In", "-A")
    begun: list[Future[Item | None]] = []
    with ThreadPoolExecutor(1) as pool:

        def begins(item: str) -> None:
            """Where the repair looks for those at work: it sees nobody, and a child begins."""
            wanted = ItemConditions(past=["In"], future=["A"])
            begun.append(pool.submit(store.items.begin, "A", item, fence=10**6, wanted=wanted))
            assert not wait(begun, 0.3).done

        replace(repair, at_work=begins).restart("B1-RT1")
        assert begun[0].result(60), "the failure was there, and is not any more"
    assert store.items.append(new_event("B1-RT1", "A", fence=10**6))
    assert store.live("B1-RT1") == ["In", "A"]


def test_a_repair_is_refused_while_somebody_works_on_the_item(store: Store, repair: Repair) -> None:
    busy = replace(repair, at_work=lambda item: "Checker works on it")
    store.add("B1-RT1", "In", "-A")
    for act in (lambda: busy.restart("B1-RT1"), lambda: busy.remove("B1-RT1", "A"), lambda: busy.add("B1-RT1", "A")):
        with pytest.raises(ItemConflict, match="Checker works on it"):
            act()
    assert store.live("B1-RT1") == ["In", "-A"]
    assert [one.type for one in busy.restart("B1-RT1", dry_run=True)] == ["A"]


@IN_BOTH
def test_events_are_added_and_removed_by_hand_and_an_item_is_stopped(store: Store, repair: Repair) -> None:
    store.add("B1-RT1", "In")
    repair.add("B1-RT1", "A", success=False)
    repair.add("B1-RT1", "A")
    assert [repair.stop("B1-RT1"), repair.stop("B1-RT1")] == [True, False]
    assert store.live("B1-RT1") == ["In", "-A", "A", "Manually_stopped"]
    assert store.items.events("B1-RT1")[1].agent == "operator-ann"
    assert not store.items.query(ItemConditions().unless_stopped()).items
    repair.remove("B1-RT1", "Manually_stopped")
    assert store.items.query(ItemConditions().unless_stopped()).items
    assert [one.type for one in repair.remove("B1-RT1", "Manually_stopped")] == ["Manually_stopped"], "given again"
    other = replace(repair, by="bob")
    with pytest.raises(ItemConflict, match="no event"):
        other.remove("B1-RT1", "Manually_stopped")
