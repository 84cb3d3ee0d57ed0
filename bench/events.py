"""What do an append and a query of events cost, beside a million earlier events, in SQLite and in PostgreSQL?

Each of 71,428 items has 14 events, of the types of a pipeline. All but a hundred items are through. The peer of an
append is a bare insert of such a row, with a commit of its own, and that of a query a read of a hundred rows by key.

Each act opens a connection. PostgreSQL starts a process for it, so an append is also timed on one that stays open. At
the end, events of ten more types go to some items by chance, so that there are a thousand profiles.
"""

import argparse
import random
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import create_engine, insert, select, text

from bench import amount
from tasks.batches import ItemConditions, Items, NewEvent, Report, profiles
from tasks.batches.schema import events, items
from tasks.database import portions
from tasks.settings import Settings
from tests.harness.postgres import PostgresServer

TYPES = [f"Step_{number:02}" for number in range(14)]
LEFT = amount(100, 1)  # items that have all events but the last
AT_ONCE = 5_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS, ROUNDS, APPENDS, WRITERS, SPREAD = amount((1_000_000, 15, 300, 4, 5_000), (140, 1, 2, 2, 4))
SERVER = {"shared_buffers": "128MB", "max_connections": "40"}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=EVENTS)
    given = parser.parse_args()
    for name, opened in (("SQLite", sqlite), ("PostgreSQL", postgres)):
        with opened() as store:
            count = given.events // len(TYPES)
            began = time.monotonic()
            fill(store, count)
            seconds = time.monotonic() - began
            total = count * len(TYPES) - LEFT
            print(f"{name}: {total} events of {count} items; filled in {seconds:.0f} s")
            appends(store)
            queries(store)
            spread(store)
            queries(store)


@contextmanager
def sqlite() -> Iterator[Items]:
    with tempfile.TemporaryDirectory() as folder:
        store = Items(Settings(data_dir=Path(folder)))
        yield store
        store.engine.dispose()


@contextmanager
def postgres() -> Iterator[Items]:
    with PostgresServer(**SERVER) as server, server.database() as name:
        store = Items(Settings(database_url=server.url(name)))
        yield store
        store.engine.dispose()


def fill(store: Items, count: int) -> None:
    """Insert in bulk, one type after the other, as a pipeline does; the youngest items lack the last step."""
    same = {"registered": NOW, "modified": NOW, "revision": 1, "type": "batch", "round_trip": 1}
    names = [f"B{number:09}" for number in range(count)]
    rows = ({"item": f"{one}-RT1", "batch": one, "rank": 10, "directory": None, **same} for one in names)
    _bulk(store, items, rows)
    for kind in TYPES:
        done = names if kind != TYPES[-1] else names[:-LEFT]
        _bulk(store, events, (_row(f"{one}-RT1", kind) for one in done))
    _count(store, [f"{one}-RT1" for one in names])


def spread(store: Items) -> None:
    chance = random.Random(1)
    names = [one.id for one in store.query(ItemConditions(), limit=SPREAD).items]
    more = [f"More_{number}" for number in range(10)]
    _bulk(store, events, (_row(one, kind) for one in names for kind in more if chance.random() < 0.5))
    _count(store, names)
    with store.engine.connect() as connection:
        print(f"  with {len(profiles.all_of(connection)[0])} profiles:")


def _count(store: Items, names: list[str]) -> None:
    with store.engine.begin() as connection:
        for portion in portions(names):
            profiles.count(connection, portion)
        connection.execute(text("ANALYZE"))


def _bulk(store: Items, table: object, rows: Iterator[dict[str, object]]) -> None:
    portion: list[dict[str, object]] = []
    with store.engine.begin() as connection:
        for row in rows:
            portion.append(row)
            if len(portion) == AT_ONCE:
                connection.execute(insert(table), portion)
                portion = []
        if portion:
            connection.execute(insert(table), portion)


def _row(item: str, kind: str) -> dict[str, object]:
    return {
        "id": str(uuid.uuid4()), "item": item, "type": kind, "success": True, "component": kind, "version": "1.0",
        "attempt": uuid.uuid4().hex, "fence": 1, "revision_read": 1, "revision": 1, "started": NOW, "ended": NOW,
        "report": Report().to_json(),
    }  # fmt: skip


def appends(store: Items) -> None:
    names = [one.id for one in store.query(ItemConditions(), limit=APPENDS * WRITERS).items]
    event = NewEvent("", "Extra", True, "Extra", "1.0", "", 1, 1, NOW, NOW)

    def append(part: list[str], kind: str) -> None:
        for name in part:
            store.begin(kind, name, fence=1, wanted=ItemConditions(future=[kind]))
            store.append(replace(event, item=name, type=kind, component=kind, attempt="1"))

    def bare(part: list[str]) -> None:
        for name in part:
            with store.engine.begin() as connection:
                connection.execute(insert(events), [_row(name, "Bare")])

    def one_by_one(kind: str) -> float:
        """Milliseconds of an append alone."""
        taken = []
        for name in names[:APPENDS]:
            store.begin(kind, name, fence=1)
            made = replace(event, item=name, type=kind, component=kind, attempt="1")
            taken.append(1000 / _rate(1, lambda made=made: store.append(made)))
        return statistics.median(taken)

    print(f"  an append  {one_by_one('Single'):.1f} ms{_on_an_open_connection(store, one_by_one)}")
    alone = _rate(APPENDS, lambda: append(names[:APPENDS], "Alone"))
    plain = _rate(APPENDS, lambda: bare(names[:APPENDS]))
    parts = [names[number * APPENDS : (number + 1) * APPENDS] for number in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as pool:
        together = _rate(APPENDS * WRITERS, lambda: list(pool.map(lambda part: append(part, "Beside"), parts)))
    print(f"  begin and append  {alone:6.0f}/s  {together:6.0f}/s by {WRITERS} writers; a bare insert {plain:6.0f}/s")


def _on_an_open_connection(store: Items, one_by_one: Callable[[str], float]) -> str:
    if store.engine.dialect.name == "sqlite":
        return ""
    usual, store.engine = store.engine, create_engine(store.engine.url, pool_size=1)
    taken = one_by_one("Open")
    store.engine.dispose()
    store.engine = usual
    return f", on a connection that stays open {taken:.1f} ms"


def queries(store: Items) -> None:
    last, before = TYPES[-1], TYPES[-2]
    cases = {
        f"{LEFT} wanted, behind all that are done": ItemConditions([before], future=[last]).unless_stopped(),
        "none wanted": ItemConditions(past_failed=[before], future=["Later"]).unless_stopped(),
        "nearly all wanted": ItemConditions([before], future=["Later"]).unless_stopped(),
        "old, none": ItemConditions(old=[before]).unless_stopped(),
    }
    keys = [one.id for one in store.query(ItemConditions(), limit=100).items]
    with store.engine.connect() as connection:
        bare = _median(lambda: connection.execute(select(items).where(items.c.item.in_(keys))).all())
    print(f"  a read of 100 items by key  {bare * 1000:8.1f} ms")
    for name, wanted in cases.items():
        page = store.query(wanted)
        first = _median(lambda wanted=wanted: store.query(wanted)) * 1000
        then = _median(lambda wanted=wanted, page=page: store.query(wanted, page.next)) * 1000 if page.next else 0
        following = f", the next page {then:.1f} ms" if page.next else ""
        print(f"  a page, {name}: {len(page.items)} items  {first:8.1f} ms{following}")


def _rate(count: int, act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return count / (time.monotonic() - began)


def _median(act: Callable[[], object]) -> float:
    return statistics.median(1 / _rate(1, act) for _ in range(ROUNDS))


if __name__ == "__main__":
    main()
