"""The profile of an item: what its newest events say, so that a page of items is found without a look at each.

A profile names the type of the item, and each type of event that it has, with the success of the newest one and
whether that one is old. Items of one profile answer each question alike. A pipeline has few profiles, however many
items went through it. So a query asks each profile once, and takes the first items of those that fit, by an index.

Each change counts its item anew, in the transaction of the change and under the lock of the item. The events that a
profile knows are marked as counted, and the item keeps the revision at which it was counted. A process of a version
that knows no profiles marks nothing: its items are asked by their events, until somebody counts them.
"""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from sqlalchemy import Connection, Engine, Select, String, bindparam, select, text, union_all, update

from tasks.batches.schema import events, items, profiles
from tasks.database import insert

AT_ONCE = 500

logger = logging.getLogger(__name__)

# As text, since each append needs both: SQLAlchemy would take longer to compose them than the database to do them.
_READ = text("""
SELECT i.item, i.type, e.type, CASE WHEN e.success IS TRUE THEN 1 ELSE 0 END,
    CASE WHEN e.revision < i.revision THEN 1 ELSE 0 END,
    EXISTS (SELECT 1 FROM events WHERE item IN :names AND counted IS NULL)
FROM items i
LEFT JOIN (SELECT item, max(number) AS number FROM events WHERE item IN :names AND removed IS NULL GROUP BY item, type)
    AS newest ON newest.item = i.item
LEFT JOIN events e ON e.number = newest.number
WHERE i.item IN :names
""").bindparams(bindparam("names", expanding=True, type_=String))
_GIVE = text("""
UPDATE items SET profile = known.number, counted = revision
FROM (SELECT number FROM profiles WHERE digest = :digest) AS known WHERE item IN :names
""").bindparams(bindparam("names", expanding=True, type_=String))


class Newest(NamedTuple):
    """The newest event of a type. `old`: it is of an older revision than the item's."""

    success: bool
    old: bool


class Profile(NamedTuple):
    """`events`: for each type that the item has."""

    type: str
    events: Mapping[str, Newest]

    def to_json(self) -> str:
        return json.dumps([self.type, [[kind, *self.events[kind]] for kind in sorted(self.events)]])


@lru_cache(4096)
def from_json(text: str) -> Profile:
    kind, found = json.loads(text)
    return Profile(kind, {one: Newest(success, old) for one, success, old in found})


def all_of(connection: Connection) -> tuple[dict[int, Profile], list[int]]:
    """Those that any item has had, by their numbers; and the numbers of those that cannot be read."""
    found: dict[int, Profile] = {}
    broken = []
    for number, shown in connection.execute(select(profiles.c.number, profiles.c.profile)):
        try:
            found[number] = from_json(shown)
        except (ValueError, TypeError) as error:
            logger.warning("the profile %s cannot be read: %s; its items are asked by their events", number, error)
            broken.append(number)
    return found, broken


def uncounted(broken: Sequence[int] = ()) -> Select[int]:
    """The numbers of the items that have changed since they were counted, or have a profile that cannot be read."""
    changed = select(items.c.number).where(items.c.counted.is_distinct_from(items.c.revision))
    has_more = items.c.item.in_(select(events.c.item).where(events.c.counted.is_(None)))
    parts = [changed, select(items.c.number).where(has_more)]
    if broken:
        parts.append(select(items.c.number).where(items.c.profile.in_(broken)))
    return select(union_all(*parts).subquery().c.number)


def count(connection: Connection, names: Sequence[str]) -> None:
    """Give these items the profiles that their events make. They are locked, or this transaction made them."""
    found, has_unmarked = _read(connection, names)
    if has_unmarked:
        # Mark those that are there, and read after that: what comes meanwhile stays unmarked.
        late = update(events).where(events.c.item.in_(names), events.c.counted.is_(None))
        connection.execute(late.values(counted=True))
        found, _ = _read(connection, names)
    alike: dict[str, list[str]] = {}
    for name, profile in found.items():
        alike.setdefault(profile.to_json(), []).append(name)
    digests = {hashlib.sha256(one.encode()).hexdigest(): one for one in alike}
    for digest in sorted(digests):  # in one order: of two that store new profiles, none waits for the other for ever
        given = {"digest": digest, "names": alike[digests[digest]]}
        if connection.execute(_GIVE, given).rowcount == 0:
            new = insert(connection, profiles).values(digest=digest, profile=digests[digest])
            connection.execute(new.on_conflict_do_nothing())
            connection.execute(_GIVE, given)


def count_the_rest(engine: Engine) -> int:
    """Count items that a process of an older version has changed. Returns how many; those that are in use can wait."""
    with engine.begin() as connection:
        late = select(items.c.item).where(items.c.number.in_(uncounted())).limit(AT_ONCE)
        names = connection.execute(late.with_for_update(skip_locked=True, of=items)).scalars().all()
        if names:
            lock_all(connection, names)
            count(connection, names)
    return len(names)


def lock_all(connection: Connection, names: Sequence[str]) -> None:
    """Have these items alone until the end of the transaction."""
    connection.execute(update(items).where(items.c.item.in_(names)).values(item=items.c.item))


def _read(connection: Connection, names: Sequence[str]) -> tuple[dict[str, Profile], bool]:
    """Their profiles, and whether any of their events is not marked as counted."""
    found: dict[str, dict[str, Newest]] = {}
    types: dict[str, str] = {}
    has_unmarked = False
    for item, type_, kind, success, old, unmarked in connection.execute(_READ, {"names": names}):
        of_item, types[item] = found.setdefault(item, {}), type_
        if kind is not None:
            of_item[kind] = Newest(bool(success), bool(old))
        has_unmarked = has_unmarked or bool(unmarked)
    return {item: Profile(types[item], of_item) for item, of_item in found.items()}, has_unmarked
