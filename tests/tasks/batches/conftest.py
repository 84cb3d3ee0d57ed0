import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest
from sqlalchemy import select, text

from tasks.batches import ItemConditions, ItemPage, Items, NewEvent, profiles
from tasks.batches.schema import items as rows
from tasks.database import portions
from tasks.settings import Settings
from tests.tasks.conftest import at

_FENCES = count(1)

ITEM = (
    "INSERT INTO items (item, batch, round_trip, type, rank, registered, modified, revision) "
    "VALUES (:item, :item, 1, 'batch', 10, '2024-05-14T09:00:00.000000Z', '2024-05-14T09:00:00.000000Z', 1)"
)
EVENT = (
    "INSERT INTO events (id, item, type, success, component, version, attempt, fence, revision_read, revision, "
    "started, ended, report, removed) SELECT :id, :item, :type, :success, :type, '1', :id, 1, 1, :revision, "
    "'2024-05-14T09:00:00.000000Z', '2024-05-14T09:00:00.000000Z', '{}', :removed"
)


def new_event(item: str, kind: str, success: bool = True, **given: Any) -> NewEvent:
    """By the component of the event's own name."""
    fence = given.setdefault("fence", next(_FENCES))
    usual = NewEvent(item, kind, success, kind, "1.0", f"attempt {fence}", fence, 1, at(1), at(2))
    return replace(usual, **given)


@dataclass(frozen=True)
class Store:
    items: Items

    def add(self, item: str, *events: str, **given: Any) -> None:
        """Register the item where it is unknown, and have events happen to it; `-Checked` is a failure."""
        self.items.register(item, **given)
        for one in events:
            self.happen(item, one)

    def happen(self, item: str, event: str, **given: Any) -> str:
        made = new_event(item, event.removeprefix("-"), not event.startswith("-"), **given)
        revision = given.get("revision_read", self.items.item(item).revision)
        self.items.begin(made.component, item, fence=made.fence)
        return self.items.append(replace(made, revision_read=revision))

    def fill(self, names: list[str], *kinds: str) -> None:
        """Many items at once, to which these types of events have happened."""
        made = [{"id": f"{name} {kind}", "item": name, "type": kind} for name in names for kind in kinds]
        with self.items.engine.begin() as connection:
            connection.execute(text(ITEM), [{"item": name} for name in names])
            if made:
                given = {"success": True, "revision": 1, "removed": None}
                connection.execute(text(EVENT), [one | given for one in made])
            for portion in portions(names):
                profiles.count(connection, portion)

    def pages(self, wanted: ItemConditions, size: int) -> Iterator[ItemPage]:
        after: str | None = ""
        while after is not None:
            page = self.items.query(wanted, after or None, size)
            yield page
            after = page.next

    def live(self, item: str) -> list[str]:
        """Its events, as `add` takes them."""
        return [("" if one.success else "-") + one.type for one in self.items.events(item)]


def finished_at_once(items: Items, names: list[str], *components: str) -> None:
    """The components finish each of the items in the same millisecond, one item after the other."""
    meet = threading.Barrier(len(components))

    def finish(component: str) -> None:
        for name in names:
            event = new_event(name, component, started=at(0), ended=at(0))
            items.begin(component, name, fence=event.fence)
            meet.wait(60)
            items.append(event)

    with ThreadPoolExecutor(len(components)) as pool:
        list(pool.map(finish, components))


def wrongly_counted(items: Items) -> list[str]:
    """The items whose events make another profile than they have; a row that a test has broken is not among them."""
    with items.engine.begin() as connection:
        said = select(rows.c.item, profiles.profiles.c.profile).join(
            profiles.profiles, profiles.profiles.c.number == rows.c.profile, isouter=True
        )
        before = dict(connection.execute(said).all())
        for portion in portions([*before]):
            profiles.count(connection, portion)
        after = dict(connection.execute(said).all())
        connection.rollback()
    return [item for item, profile in before.items() if after[item] != profile and _can_be_read(items, item)]


def _can_be_read(items: Items, item: str) -> bool:
    try:
        return items.item(item).id == item
    except ValueError:
        return False


@pytest.fixture
def items(settings: Settings, with_tables: None) -> Iterator[Items]:
    """With a connection that is kept, as the processes of components do: PostgreSQL starts a process for each."""
    found = Items(settings, keeps=True)
    yield found
    assert not wrongly_counted(found)
    found.engine.dispose()


@pytest.fixture
def store(items: Items) -> Store:
    return Store(items)
