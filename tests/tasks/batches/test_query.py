"""Items are found by what has happened to them, by priority, then age; and a broken row hides no other."""

import logging
from sqlite3 import Connection

import pytest
from sqlalchemy import event, text

from tasks.batches import ItemConditions, Items
from tests.tasks.batches.conftest import Store
from tests.tasks.conftest import IN_BOTH, at

CASES = [
    (ItemConditions(), ["all"]),
    (ItemConditions(past=["A"]), ["done", "changed", "mended"]),
    (ItemConditions(past_failed=["A"]), ["failed", "spoilt"]),
    (ItemConditions(future=["A"]), ["new", "beside"]),
    (ItemConditions(old=["A"]), ["new", "beside", "changed"]),
    (ItemConditions(past=["B"], future=["A"]), ["beside"]),
    (ItemConditions(past=["A"], past_failed=["A"]), []),
    (ItemConditions(past=["A"], old=["A"]), ["changed"]),
    (ItemConditions(past_failed=["A"], old=["A"]), []),
    (ItemConditions(types=["edition"]), ["mended"]),
    (ItemConditions(past=["A"], types=["edition", "newspaper"]), ["mended"]),
    (ItemConditions(types=["newspaper"]), []),
    (ItemConditions(past=["A"]).unless_stopped(), ["done", "changed"]),
    (ItemConditions(past=["A", "A"]), ["done", "changed", "mended"]),
    (ItemConditions(past=["100%' OR 1=1 --"]), []),
]
ALL = ["new", "beside", "done", "failed", "changed", "mended", "spoilt"]


@IN_BOTH
def test_the_newest_event_of_a_type_counts_in_every_question(store: Store) -> None:
    store.add("new")
    store.add("beside", "B")
    store.add("done", "A")
    store.add("failed", "-A")
    store.add("changed", "A")
    store.items.touch("changed")
    store.add("mended", "-A", "A", "Manually_stopped", type="edition")  # all events of one instant
    store.add("spoilt", "A", "-A")
    for wanted, names in CASES:
        expected = ALL if names == ["all"] else names
        assert [one.id for one in store.items.query(wanted).items] == expected, wanted
        assert [item.id for page in store.pages(wanted, 2) for item in page.items] == expected, wanted


@IN_BOTH
def test_items_come_by_priority_then_age_in_pages(store: Store) -> None:
    for name, priority in [("late", None), ("nine", 9), ("one", 1), ("late too", None), ("one too", 1), ("five", 5)]:
        store.add(name, priority=priority)
    found: list[str] = []
    for page in store.pages(ItemConditions(), 2):
        found += [item.id for item in page.items]
        store.add(f"after {found[-1]}", priority=1)  # what comes meanwhile neither hides an item nor repeats one
    assert [name for name in found if not name.startswith("after")] == [
        "one", "one too", "five", "nine", "late", "late too",
    ]  # fmt: skip
    assert len(found) == len(set(found))
    store.items.prioritise("late too", 1)
    assert [one.id for one in store.items.query(ItemConditions(), limit=3).items] == ["one", "late too", "one too"]
    assert store.items.item("late too").revision == 1, "a priority is no change of the item"


@pytest.mark.parametrize("after", ["x", "", "1.", ".5", "1.x"])
def test_a_bad_cursor_is_refused(items: Items, after: str) -> None:
    with pytest.raises(ValueError, match="cursor"):
        items.query(ItemConditions(), after)


NUMBERS_ONLY = ["rank = 'first'", "revision = 'x'", "round_trip = 'x'"]  # PostgreSQL takes no text there


@pytest.mark.parametrize(
    ("settings", "damage"),
    [
        *(("sqlite", damage) for damage in NUMBERS_ONLY),
        *((name, damage) for name in ("sqlite", "postgres") for damage in ("modified = 'yesterday'", "rank = 77")),
        *((name, "item = 'a\x07b'") for name in ("sqlite", "postgres")),
    ],
    indirect=["settings"],
)
def test_a_poisoned_row_in_the_middle_of_300_hides_no_other(
    store: Store, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"B{number}-RT1" for number in range(300)]
    store.fill(names, "A")
    with store.items.engine.begin() as connection:
        connection.execute(text(f"UPDATE items SET {damage} WHERE item = 'B150-RT1'"))
    with caplog.at_level(logging.WARNING):
        pages = list(store.pages(ItemConditions(past=["A"]) if "item" not in damage else ItemConditions(), 70))
    name = "a\x07b" if "item" in damage else "B150-RT1"
    assert {item.id for page in pages for item in page.items} == {*names} - {"B150-RT1"}
    assert [broken for page in pages for broken in page.broken] == [name]
    assert f"the item {name!r} cannot be read" in caplog.text


@IN_BOTH
def test_a_profile_that_cannot_be_read_hides_no_item(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    store.fill(["a1", "a2", "a3"], "A")
    store.add("b1", "B")
    with store.items.engine.begin() as connection:
        broken = "UPDATE profiles SET profile = '{' WHERE number = (SELECT profile FROM items WHERE item = 'a1')"
        connection.execute(text(broken))
    for wanted, names in [
        (ItemConditions(), ["a1", "a2", "a3", "b1"]),
        (ItemConditions(past=["A"]), ["a1", "a2", "a3"]),
    ]:
        page = store.items.query(wanted, limit=2)
        rest = store.items.query(wanted, page.next, 9)
        assert [one.id for one in (*page.items, *rest.items)] == names
    assert "cannot be read" in caplog.text


def test_a_page_costs_no_more_beside_ten_times_as_many_items(store: Store) -> None:
    """Counted in SQLite's own steps."""
    taken: list[None] = []

    def watched(dbapi: Connection, record: object) -> None:
        dbapi.set_progress_handler(lambda: taken.append(None), 100)

    def cost(wanted: ItemConditions) -> int:
        """Of two pages."""
        taken.clear()
        event.listen(store.items.engine, "connect", watched)
        store.items.query(wanted, store.items.query(wanted, limit=20).next, 20)
        event.remove(store.items.engine, "connect", watched)
        return len(taken)

    asked = [
        ItemConditions(["A"], future=["B"]),
        ItemConditions(past_failed=["A"]),
        ItemConditions(future=["C"]),
        ItemConditions(old=["A"]),
    ]
    store.add("last", "A")
    store.fill([f"B{number}-RT1" for number in range(100)], "A", "B")
    few = [cost(wanted) for wanted in asked]
    store.fill([f"C{number}-RT1" for number in range(900)], "A", "B")
    assert store.items.query(asked[0]).items[0].id == "last"
    assert all(many <= 2 * before for before, many in zip(few, map(cost, asked), strict=True))


def test_an_event_that_cannot_be_read_hides_no_other(store: Store) -> None:
    store.add("B1-RT1", "A", "B", "C")
    with store.items.engine.begin() as connection:
        connection.execute(text("UPDATE events SET report = '{', started = 'x' WHERE type = 'B'"))
    found = store.items.events("B1-RT1")
    assert [one.type for one in found] == ["A", "B", "C"]
    assert "cannot be read" in found[1].report.text
    assert found[2].started == at(1)
