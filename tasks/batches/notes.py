"""Events of deliveries and of operators. The lock of the item guards them, not a fence.

Their transaction must end with `profiles.count` of the items that it changed.
"""

import uuid
from collections.abc import Callable, Collection
from datetime import datetime

from sqlalchemy import Connection, select, update

from tasks import instants
from tasks.batches.schema import batches, events, fences, items
from tasks.batches.values import Report
from tasks.database import insert
from tasks.version import VERSION

OPERATOR, DELIVERY = "operator", "delivery"
Trail = Callable[[str, str, str, str, str], object]
"""Takes an operator's act: verb, item, the version of its events, and what is before and after."""


def no_trail(verb: str, item: str, version: str, before: str, after: str) -> None:
    """Keep none."""


def note(
    connection: Connection, item: str, kind: str, success: bool, *, by: str = "", attempt: str, text: str = ""
) -> None:
    """Append an event, once for each `attempt`. `by`: the operator; '' for a delivery."""
    now = instants.now()
    revision = select(items.c.revision).where(items.c.item == item).scalar_subquery()
    row = {
        "id": str(uuid.uuid4()),
        "item": item,
        "type": kind,
        "success": success,
        "component": OPERATOR if by else DELIVERY,
        "version": by or VERSION,
        "attempt": attempt,
        "fence": 0,
        "revision_read": revision,
        "revision": revision,
        "started": now,
        "ended": now,
        "report": Report(text=text).to_json(),
    }
    connection.execute(insert(connection, events).values(row).on_conflict_do_nothing())


def outcomes(connection: Connection, names: Collection[str], kind: str) -> dict[str, bool]:
    """For each of these items that has an event of this type: whether the newest one is a success."""
    query = select(events.c.item, events.c.success).where(
        events.c.item.in_(names), events.c.type == kind, events.c.removed.is_(None)
    )
    return {row.item: bool(row.success) for row in connection.execute(query.order_by(events.c.number))}


def is_noted(connection: Connection, item: str, component: str, attempt: str) -> bool:
    query = select(events.c.id).where(
        events.c.item == item, events.c.component == component, events.c.attempt == attempt
    )
    return connection.execute(query).first() is not None


def remove(connection: Connection, item: str, kinds: Collection[str], *, by: str, why: str, now: datetime) -> None:
    """Mark the events of these types as removed. Work that began before stores nothing any more."""
    live = update(events).where(events.c.item == item, events.c.type.in_(kinds), events.c.removed.is_(None))
    connection.execute(live.values(removed=now, removed_by=by, removed_why=why))
    connection.execute(update(fences).where(fences.c.item == item).values(open=False))


def lock_batch(connection: Connection, batch: str) -> None:
    """Lock the round trips of a batch until the end of the transaction, as its first statement."""
    statement = insert(connection, batches).values(batch=batch, changes=1)
    connection.execute(
        statement.on_conflict_do_update(index_elements=["batch"], set_={"changes": batches.c.changes + 1})
    )
