"""Stores and approves the round trips of a batch: each delivery of the batch adds one, and in the end one is approved.

Each change locks all round trips of the batch, so two deliveries are stored one after the other.
"""

import uuid

from sqlalchemy import Connection, select, update

from tasks import instants
from tasks.batches.items import Items, register
from tasks.batches.notes import DELIVERY, Trail, is_noted, lock_batch, no_trail, note, outcomes
from tasks.batches.profiles import count, lock_all
from tasks.batches.schema import items as rows
from tasks.batches.values import APPROVED, FLAGGED, RECEIVED, STOPPED, ItemConflict, parts_of

Outcomes = dict[str, str]
"""Maps each round trip that an approval changed to `approved`, `failed`, or `failed and stopped`."""


def deliver(items: Items, item: str, *, directory: str, identity: str, type: str = "batch") -> str:
    """Store a delivery of a round trip, with an event. `identity`: tells deliveries of the same round trip apart.

    Returns `received`, `received and stopped` (a round trip of the batch is approved already), `failed` (a later round
    trip was delivered before), or `known` (this delivery is stored already). Raises ValueError if `item` is no name of
    a round trip.
    """
    batch, number = parts_of(item)
    if number is None:
        raise ValueError(f"{item!r} is not a round trip: a delivery is called <batch>-RT<number>")
    with items.engine.begin() as connection:
        lock_batch(connection, batch)
        if is_noted(connection, item, DELIVERY, identity):
            return "known"
        if not register(connection, item, type=type, directory=directory):
            again = update(rows).where(rows.c.item == item)
            connection.execute(again.values(directory=directory, revision=rows.c.revision + 1, modified=instants.now()))
        trips = _numbers(connection, batch)
        lock_all(connection, [*trips])
        outcome = _receive(connection, item, number, trips, identity)
        count(connection, [*trips])
        return outcome


def _receive(connection: Connection, item: str, number: int, trips: dict[str, int], identity: str) -> str:
    """Append the events of a delivery, and return its outcome. `trips`: the numbers of the batch's round trips.

    Stops the earlier round trips; if one is approved already, stops the new one instead.
    """
    higher = [other for other, trip in trips.items() if trip > number]
    if higher:
        note(connection, item, RECEIVED, False, attempt=identity, text=f"{higher[-1]} was delivered before")
        return "failed"
    approved = [other for other, success in outcomes(connection, trips, APPROVED).items() if success]
    note(connection, item, RECEIVED, True, attempt=identity)
    stopped = outcomes(connection, trips, STOPPED)
    late = [item] if approved else [other for other in trips if other != item]
    why = f"{approved[0]} is approved" if approved else f"{item} was delivered"
    for trip in late:
        if trip not in stopped:
            note(connection, trip, STOPPED, True, attempt=f"{identity} of {item}", text=why)
    return "received and stopped" if approved else "received"


def approve(items: Items, batch: str, *, by: str, why: str = "", trail: Trail = no_trail) -> Outcomes:
    """Approve the highest round trip of a batch that has the event `Manual_QA_Flagged`.

    Lower ones with that event fail; higher ones fail and are stopped. `by`, `why`: the operator and the reason.
    `trail`: writes each change into the audit trail. Raises ItemConflict if none is flagged, or one already approved.
    """
    with items.engine.begin() as connection:
        lock_batch(connection, batch)
        trips = _numbers(connection, batch)
        approved = [trip for trip, success in outcomes(connection, trips, APPROVED).items() if success]
        if approved:
            raise ItemConflict(f"{approved[0]} is approved already")
        flagged = [trip for trip, success in outcomes(connection, trips, FLAGGED).items() if success]
        if not flagged:
            raise ItemConflict(f"no round trip of {batch} has the event {FLAGGED}")
        lock_all(connection, [*trips])
        best = max(flagged, key=trips.__getitem__)
        changed: Outcomes = {}
        for trip, number in trips.items():
            higher = number > trips[best]
            if trip in flagged or higher:
                changed[trip] = "approved" if trip == best else "failed and stopped" if higher else "failed"
                trail("approve", trip, best, "flagged" if trip in flagged else "", changed[trip])
                _note(connection, trip, APPROVED, trip == best, by, why or f"{best} is approved")
            if higher:
                _note(connection, trip, STOPPED, True, by, f"{best} is approved")
        count(connection, [*trips])
        return changed


def _note(connection: Connection, item: str, kind: str, success: bool, by: str, text: str) -> None:
    note(connection, item, kind, success, by=by, attempt=uuid.uuid4().hex, text=text)


def _numbers(connection: Connection, batch: str) -> dict[str, int]:
    """Map the items of a batch's round trips to their numbers, in ascending order.

    Reads the names of the items only, since other columns of an item may be invalid.
    """
    query = select(rows.c.item).where(rows.c.batch == batch)
    numbers = {
        item: number for item in connection.execute(query).scalars() if (number := parts_of(item)[1]) is not None
    }
    return dict(sorted(numbers.items(), key=lambda trip: trip[1]))
