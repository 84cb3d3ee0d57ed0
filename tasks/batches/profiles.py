"""Profiles: summaries of items' newest events, so that a query finds a page of items without reading events.

A profile consists of the item's type, and for each type of the item's events whether the newest one is a success, and
whether that event is old (from before the item's last change). A query tests no other facts, and even millions of items
have few different profiles. So a query tests each profile once, and finds the first items of the fitting profiles by an
index.

Each transaction that changes an item locks the item and updates its profile.
"""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from sqlalchemy import Connection, Engine, String, bindparam, delete, select, text, update

from tasks.batches.schema import items, profiles
from tasks.database import insert, portions

logger = logging.getLogger(__name__)

# Both statements are text, since each append executes them: SQLAlchemy takes longer to compile an expression than the
# database takes to execute the statement.
_READ = text("""
SELECT i.item, i.type, e.type, CASE WHEN e.success IS TRUE THEN 1 ELSE 0 END,
    CASE WHEN e.revision < i.revision THEN 1 ELSE 0 END
FROM items i
LEFT JOIN (SELECT item, max(number) AS number FROM events WHERE item IN :names AND removed IS NULL GROUP BY item, type)
    AS newest ON newest.item = i.item
LEFT JOIN events e ON e.number = newest.number
WHERE i.item IN :names
""").bindparams(bindparam("names", expanding=True, type_=String))
_GIVE = text("""
UPDATE items SET profile = known.number
FROM (SELECT number FROM profiles WHERE digest = :digest) AS known WHERE item IN :names
""").bindparams(bindparam("names", expanding=True, type_=String))


class Newest(NamedTuple):
    """The newest event of one type that an item has. `old`: the item's revision is greater than the event's."""

    success: bool
    old: bool


class Profile(NamedTuple):
    """What all items with this profile share: their `type`, and in `events` the newest event of each type of events."""

    type: str
    events: Mapping[str, Newest]

    def to_json(self) -> str:
        """Write the profile as JSON. Equal profiles have equal texts."""
        return json.dumps([self.type, [[kind, *self.events[kind]] for kind in sorted(self.events)]])


@lru_cache(4096)
def from_json(text: str) -> Profile:
    item_type, events = json.loads(text)
    return Profile(item_type, {kind: Newest(success, old) for kind, success, old in events})


def all_of(connection: Connection) -> tuple[dict[int, Profile], list[int]]:
    """Read all stored profiles. Returns the profiles by their numbers, and the numbers of the invalid rows."""
    readable: dict[int, Profile] = {}
    broken = []
    for number, shown in connection.execute(select(profiles.c.number, profiles.c.profile)):
        try:
            readable[number] = from_json(shown)
        except (ValueError, TypeError) as error:
            logger.warning("the profile %s cannot be read: %s; computing its items' profiles again", number, error)
            broken.append(number)
    return readable, broken


def mend(engine: Engine, broken: Sequence[int]) -> None:
    """Delete the invalid rows with the numbers `broken`, and compute the profiles of the items that had them again."""
    with engine.begin() as connection:
        names = connection.execute(select(items.c.item).where(items.c.profile.in_(broken))).scalars().all()
        connection.execute(delete(profiles).where(profiles.c.number.in_(broken)))
        for portion in portions(names):
            lock_all(connection, portion)
            count(connection, portion)


def count(connection: Connection, names: Sequence[str]) -> None:
    """Compute and store the profiles of the items in `names`, which this transaction has locked or added before."""
    alike: dict[str, list[str]] = {}
    for name, profile in of_items(connection, names).items():
        alike.setdefault(profile.to_json(), []).append(name)
    digests = {hashlib.sha256(profile.encode()).hexdigest(): profile for profile in alike}
    for digest in sorted(digests):  # every transaction adds profiles in this order, so that no two of them deadlock
        values = {"digest": digest, "names": alike[digests[digest]]}
        if connection.execute(_GIVE, values).rowcount == 0:
            new = insert(connection, profiles).values(digest=digest, profile=digests[digest])
            connection.execute(new.on_conflict_do_nothing())
            connection.execute(_GIVE, values)


def lock_all(connection: Connection, names: Sequence[str]) -> None:
    """Lock the rows of the items in `names` until the transaction ends."""
    connection.execute(update(items).where(items.c.item.in_(names)).values(item=items.c.item))


def of_items(connection: Connection, names: Sequence[str]) -> dict[str, Profile]:
    """Compute the profiles of the items in `names` from their events, and store nothing."""
    newest: dict[str, dict[str, Newest]] = {}
    types: dict[str, str] = {}
    for item, type_, kind, success, old in connection.execute(_READ, {"names": names}):
        of_item, types[item] = newest.setdefault(item, {}), type_
        if kind is not None:
            of_item[kind] = Newest(bool(success), bool(old))
    return {item: Profile(types[item], of_item) for item, of_item in newest.items()}
