"""The causes of a job that lacks a quota: its units, its rate, a cool-down, or the jobs before it in the queue."""

from __future__ import annotations

from coordinator.core.jobs.options import Units
from coordinator.core.jobs.rate import read_rate
from coordinator.core.jobs.record import Job
from coordinator.core.quotas.client import Quota, QuotaClient
from coordinator.core.store.reading import text_in
from coordinator.core.store.steps import quota_place
from coordinator.core.store.values import Json
from coordinator.ops.diagnosis.cause import Cause
from coordinator.ops.diagnosis.codes import MOST_NAMES, cause, names
from coordinator.ops.diagnosis.snapshot import Snapshot, by
from coordinator.ops.search.quotas import is_short, units_used


def lacking(snapshot: Snapshot, job: Job) -> list[Cause]:
    """Return the causes of a job that lacks a quota, though it has its turn in all its lanes (rules/quotas.lua); none
    for another job.
    """
    if not job.lacks:
        return []
    store, thing, use = snapshot.store, f"job {job.id}", job.uses.get(job.lacks)
    [quota], wants = QuotaClient(store).read_many([job.lacks]), use.units if use else 1
    rank, behind, offered = quota_place.look(store, quota.name, job.id)
    head, ready = [text_in(behind)] if behind else [], [text_in(one) for one in offered]
    facts: dict[str, Json] = {"name": quota.name, "wants": wanted(wants), "ahead": rank or None, "head": names(head)}
    causes = [_units(snapshot, thing, quota, wants, facts)] if head or is_short(quota, wants) else []
    if not (causes or quota.next_start or quota.cools_for) and ready:
        causes = [cause("waiting.ready", thing, [f"job {one}" for one in ready], name=quota.name, ready=names(ready))]
    if quota.next_start:
        causes.append(_rate(snapshot, thing, quota, rank, facts))
    if quota.cools_for:
        causes.insert(0, cooling(snapshot, quota))
    return causes


def _units(snapshot: Snapshot, thing: str, quota: Quota, wants: Units, facts: dict[str, Json]) -> Cause:
    """Make the cause of a job that lacks units. It leads to the head of the queue, and to those that use the quota."""
    users = list(units_used(snapshot.store, quota.name, MOST_NAMES + 1))
    head = [str(one) for one in facts["head"]] if isinstance(facts["head"], list) else []
    needed = quota.used + (1 if wants == "all" else wants)
    facts = facts | {
        "used": quota.used, "free": quota.free, "concurrency": quota.concurrency, "users": names(users),
        "rate": quota.rate, "burst": quota.burst, "declared": quota.name if quota.declared else quota.default,
        "greater": needed if wants != "all" and quota.declared else None,
    }  # fmt: skip
    return cause("waiting.quota", thing, [f"job {one}" for one in dict.fromkeys([*head, *users])], **facts)


def _rate(snapshot: Snapshot, thing: str, quota: Quota, rank: int, facts: dict[str, Json]) -> Cause:
    due = snapshot.clock.wall + 1000 * (quota.next_start + rank * step_of(quota))
    return cause(
        "waiting.rate", thing, **facts, rate=quota.rate, burst=quota.burst, **snapshot.due(due)
    )  # fmt: skip


def cooling(snapshot: Snapshot, quota: Quota) -> Cause:
    due = snapshot.due(snapshot.clock.wall + 1000 * quota.cools_for)
    return cause("waiting.cooldown", f"quota {quota.name}", name=quota.name, **due, **by(quota.cooled))


def wanted(units: Units) -> str:
    return "all units" if units == "all" else f"{units} unit{'s' * (units > 1)}"


def step_of(quota: Quota) -> float:
    """Return the seconds between two units by the quota's rate; 0: it has none."""
    if quota.rate is None:
        return 0.0
    units, period = read_rate(quota.rate)
    return period / 1000 / units
