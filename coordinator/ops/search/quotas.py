"""Reads quotas for people: all of them, or one with the jobs that use it and those that wait for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from coordinator.core.jobs.options import Units
from coordinator.core.jobs.record import fields_of_many
from coordinator.core.jobs.uses import uses_in
from coordinator.core.lanes.view import Holder, holders_of
from coordinator.core.quotas.client import Quota, QuotaClient
from coordinator.core.store.client import Store
from coordinator.core.store.reading import FieldReader, number_in, text_in
from coordinator.core.store.step import Reply
from coordinator.core.store.steps import quota_queue

_COUNTED = 10_000  # quotas of which totals are made


@dataclass(frozen=True, slots=True)
class Quotas:
    """A page of quotas. `quotas`: those that are declared or in use, by name. `defaults`: of names that begin so, the
    longest first: that order decides. `after`: ask with it for the next page; "" = this is the last one.
    """

    quotas: tuple[Quota, ...]
    defaults: tuple[Quota, ...]
    after: str = ""


@dataclass(frozen=True, slots=True)
class QuotaUser:
    """A job, or a lock in plain code, that has units of a quota. `node`: where it runs; `since`: its first claim."""

    job_id: str
    units: int
    state: str
    node: str | None
    since: datetime | None


@dataclass(frozen=True, slots=True)
class QuotaWaiter:
    """A job, or a lock in plain code, in the queue of a quota. `since`: it has its turn in all its lanes, and lacks a
    quota.
    """

    job_id: str
    units: Units
    priority: int
    since: datetime | None


@dataclass(frozen=True, slots=True)
class QuotaStatus:
    """A quota with those that use it, the ones with the most units first, and those that wait for it, in their order.

    At most as many as the caller wanted; `quota` has the numbers of all.
    """

    quota: Quota
    users: tuple[QuotaUser, ...]
    queue: tuple[QuotaWaiter, ...]


@dataclass(frozen=True, slots=True)
class QuotaTotals:
    """All quotas together. `known`: those that are declared or in use; `declared`: by name, not by a default;
    `cooling`: those that start nothing until an instant; `used`: units. The last three are those of 10,000 quotas at
    most.
    """

    known: int
    declared: int
    cooling: int
    used: int


def quota_totals(store: Store) -> QuotaTotals:
    """Count quotas and their units, without their users and queues."""
    known, drawn = store.read_many([("ZCARD", store.key("quotas")), ("ZRANDMEMBER", store.key("quotas"), _COUNTED)])
    quotas = QuotaClient(store).read_many([name.decode() for name in drawn])
    return QuotaTotals(
        known, sum(one.declared is not None for one in quotas), sum(one.cools_for > 0 for one in quotas),
        sum(one.used for one in quotas),
    )  # fmt: skip


def status_of(store: Store, name: str, most: int) -> QuotaStatus:
    """Read a quota, at most `most` of its users, and as many of its queue. Raises UnknownQuota."""
    quota = QuotaClient(store).read(name)
    return QuotaStatus(quota, tuple(users(store, name, most)), tuple(waiters(store, name, most)))


def units_used(store: Store, name: str, most: int) -> dict[str, int]:
    """Return the units of at most `most` users of a quota, by id, the greatest number first."""
    _, units = store.read("HSCAN", store.key("quota-users", name), 0, "COUNT", most)
    read = ((job_id.decode(), number_in(number) or 0) for job_id, number in units.items())
    return dict(sorted(read, key=lambda pair: (-pair[1], pair[0]))[:most])


def queued(store: Store, name: str, most: int) -> list[str]:
    """Return the ids of the first `most` jobs in the queue of a quota."""
    return [job_id for _, job_id in places_in(quota_queue.look(store, name, most))] if most else []


def places_in(reply: Reply) -> list[tuple[float, str]]:
    """Read the reply of the step `quota_queue`: the place and the id of each job."""
    return [(float(place), text_in(job_id)) for job_id, place in zip(reply[::2], reply[1::2], strict=True)]


def users(store: Store, name: str, most: int) -> list[QuotaUser]:
    units = units_used(store, name, most)
    known = holders_of(store, [*units])
    return [_user(job_id, number, *known[job_id]) for job_id, number in units.items()]


def _user(job_id: str, units: int, state: str, holder: Holder | None) -> QuotaUser:
    node, since = (holder.node, holder.since) if holder else (None, None)
    return QuotaUser(job_id, units, state, node, since)


def waiters(store: Store, name: str, most: int) -> list[QuotaWaiter]:
    ids = queued(store, name, most)
    fields = fields_of_many(store, ids, "uses", "priority", "lacked")
    return [
        QuotaWaiter(job_id, units_in(uses, name), number_in(priority) or 0, FieldReader({"at": at}).instant("at"))
        for job_id, (uses, priority, at) in zip(ids, fields, strict=True)
    ]


def units_in(uses: str, name: str) -> Units:
    """Return the units of this quota in a record's field `uses`."""
    try:
        return uses_in(uses)[name].units
    except (KeyError, ValueError):
        return 1


def is_short(quota: Quota, wants: Units) -> bool:
    """Return True if the quota has too few free units for a job that wants so many."""
    if wants == "all":
        return quota.used > 0
    return quota.free is not None and quota.free < wants


def code_of(quota: Quota, wants: Units) -> str:
    """Return the code of why the head of a quota's queue waits. `wants`: its units."""
    if quota.cools_for:
        return "waiting.cooldown"
    if is_short(quota, wants):
        return "waiting.quota"
    return "waiting.rate" if quota.next_start else "waiting.ready"
