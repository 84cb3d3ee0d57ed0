"""Writes the events of deliveries and of operators, in a transaction that has locked the item; they need no fence.

Such a transaction must end with `profiles.count` for the changed items.
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
"""A function that writes an operator's change into the audit trail.

Called with: verb, item, version of the item's events, and the item's state before and after the change.
"""


def no_trail(verb: str, item: str, version: str, before: str, after: str) -> None:
    """Do nothing: the Trail for changes that the audit trail need not have."""


def note(
    connection: Connection, item: str, kind: str, success: bool, *, by: str = "", attempt: str, text: str = ""
) -> None:
    """Append an event of the type `kind` to an item. A second call with the same `attempt` does nothing.

    `by`: the operator; "" for the event of a delivery. `text`: the text of the event's report.
    """
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
    """For each item in `names` that has an event of the type `kind`: True if the newest of these is a success."""
    query = select(events.c.item, events.c.success).where(
        events.c.item.in_(names), events.c.type == kind, events.c.removed.is_(None)
    )
    return {row.item: bool(row.success) for row in connection.execute(query.order_by(events.c.number))}


def is_noted(connection: Connection, item: str, component: str, attempt: str) -> bool:
    """True if the item has an event that this attempt of the component stored."""
    query = select(events.c.id).where(
        events.c.item == item, events.c.component == component, events.c.attempt == attempt
    )
    return connection.execute(query).first() is not None


def remove(connection: Connection, item: str, kinds: Collection[str], *, by: str, why: str, now: datetime) -> None:
    """Mark an item's events of the types `kinds` as removed, and close the item's fences.

    So a job that began work on the item before this can store no event. `by`, `why`: the operator and the reason.
    """
    live = update(events).where(events.c.item == item, events.c.type.in_(kinds), events.c.removed.is_(None))
    connection.execute(live.values(removed=now, removed_by=by, removed_why=why))
    connection.execute(update(fences).where(fences.c.item == item).values(open=False))


def lock_batch(connection: Connection, batch: str) -> None:
    """Lock the round trips of a batch until the transaction ends; must be the first statement of that."""
    statement = insert(connection, batches).values(batch=batch, changes=1)
    connection.execute(
        statement.on_conflict_do_update(index_elements=["batch"], set_={"changes": batches.c.changes + 1})
    )
